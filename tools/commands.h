// The subcommands. Each adds itself to the parser; its work runs when the command line has been read and understood.
#ifndef RMSNORM_TOOLS_COMMANDS_H_
#define RMSNORM_TOOLS_COMMANDS_H_

#include <CLI/CLI.hpp>

namespace rmsnorm::tools {

void add_info_command(CLI::App& app);
void add_norm_command(CLI::App& app);
void add_check_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_convert_commands(CLI::App& app);  // inspect, convert, fold, verify

// Subcommands of `norm` and `check`, one for each operation of check/operation.h.
void add_norm_operations(CLI::App& norm);
void add_check_operations(CLI::App& check);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_COMMANDS_H_
