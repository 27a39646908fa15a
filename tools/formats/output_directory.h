// A folder that appears whole or not at all: it is made beside its place under another name, and takes its name at the
// end, when all of it is on the disk. After an error, SIGINT, SIGTERM, SIGHUP or SIGQUIT nothing is left.
#ifndef RMSNORM_TOOLS_FORMATS_OUTPUT_DIRECTORY_H_
#define RMSNORM_TOOLS_FORMATS_OUTPUT_DIRECTORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rmsnorm::tools {

class OutputDirectory {
 public:
  // A file of a size known before, written in any order, from any thread.
  class File {
   public:
    File(std::string path, std::string shown, std::uint64_t size);
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    void write(std::uint64_t offset, std::span<const std::byte> bytes);
    void finish();

   private:
    std::string shown_;  // for messages
    int descriptor_;
  };

  explicit OutputDirectory(std::string path);  // must not exist
  ~OutputDirectory();
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  // `name` is a plain name, or one inside a folder made before.
  File& add(const std::string& name, std::uint64_t size);
  void add(const std::string& name, const std::string& text);
  void add_folder(const std::string& name);
  void finish();   // everything to the disk
  void publish();  // takes the name; fails if somebody else took it meanwhile

 private:
  std::string path_;
  std::string temporary_;  // empty when there is none
  int slot_ = -1;
  std::vector<std::string> folders_;
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_FORMATS_OUTPUT_DIRECTORY_H_
