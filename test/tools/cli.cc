#include "cli.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tools/formats/location.h"
#include "tools/formats/npy.h"

namespace rmsnorm::tools {

namespace {

struct Pipe {
  int read = -1, write = -1;
};

Pipe make_pipe() {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  return {ends[0], ends[1]};
}

Pipe make_terminal() {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_GE(master, 0);
  EXPECT_EQ(::grantpt(master), 0);
  EXPECT_EQ(::unlockpt(master), 0);
  return {master, ::open(::ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC)};
}

// Reads both until the other ends are closed.
void drain(int out, int err, Outcome& outcome) {
  std::array<pollfd, 2> fds{pollfd{out, POLLIN, 0}, pollfd{err, POLLIN, 0}};
  std::string* texts[] = {&outcome.out, &outcome.err};
  int open = 2;
  while (open > 0 && ::poll(fds.data(), fds.size(), -1) >= 0) {
    for (std::size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = ::read(fds[i].fd, buffer, sizeof buffer);
      if (got > 0) {
        texts[i]->append(buffer, static_cast<std::size_t>(got));
      } else {  // a closed terminal reads as an error
        fds[i].fd = -1;
        --open;
      }
    }
  }
}

}  // namespace

Cli::Cli() : folder_((std::filesystem::temp_directory_path() / "rmsnorm-cli-XXXXXX").string()) {
  EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
}

Cli::~Cli() { std::filesystem::remove_all(folder_); }

Outcome Cli::run(const std::vector<std::string>& arguments, const RunOptions& options) const {
  const Pipe out = make_pipe();
  const Pipe err = options.err_is_terminal ? make_terminal() : make_pipe();
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<char*> pointers{const_cast<char*>("rmsnorm")};
    for (const auto& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    for (const auto& variable : options.environment) ::putenv(const_cast<char*>(variable.c_str()));
    ::dup2(out.write, STDOUT_FILENO);
    ::dup2(err.write, STDERR_FILENO);
    if (::chdir(folder_.c_str()) == 0) {
      if (options.in_child) options.in_child();
      ::execv(RMSNORM_CLI, pointers.data());
    }
    ::_exit(127);
  }
  ::close(out.write);
  ::close(err.write);
  if (options.while_running) options.while_running(child);
  Outcome outcome;
  drain(out.read, err.read, outcome);
  ::close(out.read);
  ::close(err.read);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  return outcome;
}

void Cli::expect_failure(const std::vector<std::string>& arguments, int code, const std::string& text) const {
  const std::vector<std::string> before = files();
  const Outcome outcome = run(arguments);
  std::string line;
  for (const auto& argument : arguments) line += " " + argument;
  EXPECT_EQ(outcome.code, code) << line << "\n" << outcome.err;
  EXPECT_NE(outcome.err.find(text), std::string::npos) << line << "\n" << outcome.err;
  EXPECT_EQ(files(), before) << line;
}

void Cli::write_bytes(const std::string& name, const std::string& bytes) const {
  std::ofstream(path(name), std::ios::binary) << bytes;
}

std::string Cli::read_bytes(const std::string& name) const {
  std::ifstream in(path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void Cli::write_npy(const std::string& name, const Shape& shape, const std::vector<float>& values) const {
  std::string bytes = npy_header(RN_F32, shape);
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  write_bytes(name, bytes);
}

std::vector<float> Cli::read_floats(const std::string& location) const {
  const Tensor t = read_tensor(parse_location(path(location)));
  EXPECT_EQ(t.type, RN_F32);
  std::vector<float> values(t.data.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), t.data.data(), t.data.size());
  return values;
}

std::vector<std::string> Cli::files() const {
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(folder_)) names.push_back(item.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace rmsnorm::tools
