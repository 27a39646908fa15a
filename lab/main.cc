// rmsnorm-lab. docs: `rmsnorm-lab --help`.
#include <fmt/format.h>

#include <cstdio>
#include <new>
#include <stdexcept>

#include "lab/commands/commands.h"
#include "rmsnorm/rmsnorm.h"
#include "tools/error.h"
#include "tools/formats/temporaries.h"

namespace rmsnorm::lab {

namespace {

using tools::ExitCode;

std::string main_footer() {
  std::string text =
      "\nExamples:\n"
      "  rmsnorm-lab train --help\n"
      "  rmsnorm-lab list\n"
      "  rmsnorm-lab run --scale smoke\n"
      "  rmsnorm-lab report\n"
      "  rmsnorm-lab soak --seconds 3600 --seed 1\n"
      "\nExit codes:\n";
  for (const tools::ExitCodeText& entry : tools::kExitCodes) {
    text += fmt::format("  {}  {}\n", static_cast<int>(entry.code), entry.meaning);
  }
  return text;
}

int failed(ExitCode code, const char* message) {
  std::fflush(stdout);
  fmt::print(stderr, "rmsnorm-lab: {}\n", tools::printable(message, true));
  return static_cast<int>(code);
}

int run(int argc, char** argv) {
  CLI::App app("Trains models on the norms of this library and measures what is said about RMSNorm.", "rmsnorm-lab");
  app.set_version_flag("--version", std::string("rmsnorm-lab ") + rn_version());
  app.footer(main_footer());
  app.require_subcommand(1);
  add_train_command(app);
  add_generate_command(app);
  add_export_command(app);
  add_list_command(app);
  add_run_command(app);
  add_report_command(app);
  add_soak_command(app);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) tools::fail_errno("standard output", "write");
    return static_cast<int>(ExitCode::kOk);
  } catch (const CLI::ParseError& error) {
    // Help and version come as an "error" with exit code 0.
    return app.exit(error) == 0 ? static_cast<int>(ExitCode::kOk) : static_cast<int>(ExitCode::kUsage);
  } catch (const tools::ToolError& error) {
    return failed(error.code(), error.what());
  } catch (const std::invalid_argument& error) {
    return failed(ExitCode::kBadInput, error.what());
  } catch (const std::bad_alloc&) {
    return failed(ExitCode::kUnavailable, "not enough memory");
  } catch (const std::exception& error) {
    return failed(ExitCode::kInternal, error.what());
  }
}

}  // namespace

}  // namespace rmsnorm::lab

int main(int argc, char** argv) {
  rmsnorm::tools::install_signal_handlers();
  return rmsnorm::lab::run(argc, argv);
}
