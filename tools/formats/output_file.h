// Files that appear whole or not at all: bytes go to a temporary file in the same folder, which takes the name at the
// end. Until then a file of that name stays as it is; after an error, SIGINT, SIGTERM, SIGHUP or SIGQUIT nothing is left.
#ifndef RMSNORM_TOOLS_FORMATS_OUTPUT_FILE_H_
#define RMSNORM_TOOLS_FORMATS_OUTPUT_FILE_H_

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace rmsnorm::tools {

class OutputFile {
 public:
  // `path` must name a regular file or nothing yet. A symbolic link is followed: the file that it names is replaced.
  explicit OutputFile(std::string path);
  ~OutputFile();  // removes the temporary file unless publish() succeeded
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void finish();       // to the disk: after this only publish() is left to do
  void publish();      // takes the name
  void publish_new();  // ... if nothing has it; an error otherwise

 private:
  void published();

  std::string path_;       // as given, for messages
  std::string final_;      // with links resolved
  std::string temporary_;  // empty when there is none
  int descriptor_ = -1;
  int slot_ = -1;  // in the list that the signal handler reads
};

// With all folders above it; one that is there stays. Throws ToolError.
void make_folder(const std::filesystem::path& folder);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_FORMATS_OUTPUT_FILE_H_
