// Files and folders that are not finished: a signal that ends the process removes them first.
#ifndef RMSNORM_TOOLS_FORMATS_TEMPORARIES_H_
#define RMSNORM_TOOLS_FORMATS_TEMPORARIES_H_

#include <string>

namespace rmsnorm::tools {

// Names a temporary file, or a folder with all that lies in it. Returns -1 for a path too long for a signal handler's
// buffer, or when too many are there: such a one is still removed on every error.
int register_temporary(const std::string& path, bool folder);
void unregister_temporary(int slot);

// Removes the files in the folder, those one level deeper, and the folder. Safe in a signal handler.
void remove_folder(const char* path);

// Gives a finished file or folder its name if nothing has it. False otherwise, and errno says why: EEXIST or ENOTEMPTY
// where something has.
bool take_new_name(const std::string& temporary, const std::string& path);

// While one lives, this thread gets no signal: between the creation of a file and its registration.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  alignas(16) unsigned char before_[128];  // a sigset_t
};

// Installs the handlers that remove temporary files when a signal ends the process, and turns a file size limit from a
// death into a write error. Called once by main.
void install_signal_handlers();

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_FORMATS_TEMPORARIES_H_
