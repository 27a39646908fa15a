// The command line as a program: started, watched, and given files in a folder of its own.
#ifndef RMSNORM_TEST_TOOLS_CLI_H_
#define RMSNORM_TEST_TOOLS_CLI_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tools/formats/tensor.h"

namespace rmsnorm::tools {

struct Outcome {
  int code = -1;   // exit code, or -1 after a signal
  int signal = 0;  // that ended it
  std::string out, err;
};

struct RunOptions {
  std::vector<std::string> environment;        // "NAME=value", added
  std::function<void()> in_child;              // before exec
  std::function<void(int pid)> while_running;  // in the parent
  bool err_is_terminal = false;
};

class Cli : public testing::Test {
 protected:
  Cli();
  ~Cli() override;

  // Runs `rmsnorm ARGUMENTS` inside the folder.
  Outcome run(const std::vector<std::string>& arguments, const RunOptions& options = {}) const;

  // Expects the exit code and, on standard error, the text.
  void expect_failure(const std::vector<std::string>& arguments, int code, const std::string& text) const;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write_bytes(const std::string& name, const std::string& bytes) const;
  std::string read_bytes(const std::string& name) const;
  void write_npy(const std::string& name, const Shape& shape, const std::vector<float>& values) const;
  std::vector<float> read_floats(const std::string& location) const;
  std::vector<std::string> files() const;  // names in the folder, sorted

 private:
  std::string folder_;
};

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TEST_TOOLS_CLI_H_
