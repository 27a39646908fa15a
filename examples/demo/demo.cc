// rmsnorm_demo [--no-speed] FOLDER: the library's main job on real input, then its speed on this machine.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "examples/demo/recompute.h"
#include "examples/demo/speed.h"
#include "tools/error.h"

namespace {

using rmsnorm::tools::ExitCode;

int run(int argc, char** argv) {
  const bool speed = argc < 2 || std::strcmp(argv[1], "--no-speed") != 0;
  const int folder = speed ? 1 : 2;
  if (argc != folder + 1) {
    fmt::print(stderr, "usage: rmsnorm_demo [--no-speed] FOLDER, where FOLDER is examples/data\n");
    return static_cast<int>(ExitCode::kUsage);
  }
  // The command line is built beside this program.
  const std::string program = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "rmsnorm").string();
  const bool good = rmsnorm::demo::recompute(program, argv[folder]);
  if (speed) rmsnorm::demo::show_speed();
  return static_cast<int>(good ? ExitCode::kOk : ExitCode::kOutsideBudget);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const rmsnorm::tools::ToolError& error) {
    fmt::print(stderr, "rmsnorm_demo: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "rmsnorm_demo: {}\n", error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}
