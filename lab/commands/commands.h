// The subcommands of rmsnorm-lab. Each adds itself to the parser; its work runs when the command line has been read.
// Errors are exceptions: tools::ToolError carries the exit code, a std::invalid_argument is bad input (a norm's or
// model's option), a CLI::ParseError a wrong command line.
#ifndef RMSNORM_LAB_COMMANDS_COMMANDS_H_
#define RMSNORM_LAB_COMMANDS_COMMANDS_H_

#include <CLI/CLI.hpp>
#include <string>

namespace rmsnorm::lab {

// A check of options that CLI11 would read as 2^64 - 1 for -1.
inline std::string at_least_zero(const std::string& text) {
  return text.starts_with('-') ? "it is " + text + "; it must be at least 0" : "";
}

void add_train_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_export_command(CLI::App& app);

void add_list_command(CLI::App& app);    // the experiments, with claim, design and rule
void add_run_command(CLI::App& app);     // experiments, to pieces in a folder
void add_report_command(CLI::App& app);  // the pieces as HTML and Markdown
void add_soak_command(CLI::App& app);    // the operators against the reference for a given time

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_COMMANDS_COMMANDS_H_
