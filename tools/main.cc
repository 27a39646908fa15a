// The command line. docs: `rmsnorm --help`.
#include <fmt/format.h>

#include <cstdio>
#include <new>

#include "rmsnorm/rmsnorm.h"
#include "tools/commands.h"
#include "tools/error.h"
#include "tools/formats/temporaries.h"

namespace rmsnorm::tools {

namespace {

std::string main_footer() {
  std::string text =
      "\nExamples:\n"
      "  rmsnorm info\n"
      "  rmsnorm norm rms_norm x.npy --weight w.npy --epsilon 1e-5 -o y.npy\n"
      "  rmsnorm check rms_norm x=16x4096:bf16 w=f32\n"
      "  rmsnorm bench --quick\n"
      "  rmsnorm convert gpt2/ gpt2-rms/\n"
      "\nExit codes:\n";
  for (const ExitCodeText& entry : kExitCodes) {
    text += fmt::format("  {}  {}\n", static_cast<int>(entry.code), entry.meaning);
  }
  return text + "A signal that ends the program removes its unfinished files first.";
}

int report(ExitCode code, const char* message) {
  fmt::print(stderr, "rmsnorm: {}\n", printable(message));  // names and paths may be anybody's
  return static_cast<int>(code);
}

int run(int argc, char** argv) {
  CLI::App app("RMSNorm and LayerNorm on tensors in files, with checks and benchmarks.", "rmsnorm");
  app.set_version_flag("--version", std::string("rmsnorm ") + rn_version());
  app.footer(main_footer());
  app.require_subcommand(1);
  add_info_command(app);
  add_norm_command(app);
  add_check_command(app);
  add_bench_command(app);
  add_convert_commands(app);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_errno("standard output", "write");
    return static_cast<int>(ExitCode::kOk);
  } catch (const CLI::ParseError& error) {
    // Help and version come as an "error" with exit code 0.
    return app.exit(error) == 0 ? static_cast<int>(ExitCode::kOk) : static_cast<int>(ExitCode::kUsage);
  } catch (const ToolError& error) {
    std::fflush(stdout);
    return report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(ExitCode::kUnavailable, "not enough memory for the tensors");
  } catch (const std::exception& error) {
    return report(ExitCode::kInternal, error.what());
  }
}

}  // namespace

}  // namespace rmsnorm::tools

int main(int argc, char** argv) {
  rmsnorm::tools::install_signal_handlers();
  return rmsnorm::tools::run(argc, argv);
}
