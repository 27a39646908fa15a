// rmsnorm-lab list, run and report.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "lab/commands/commands.h"
#include "lab/commands/jobs.h"
#include "lab/experiments/collect.h"
#include "lab/report/report.h"
#include "lab/report/text.h"
#include "tools/error.h"
#include "tools/formats/output_file.h"

namespace rmsnorm::lab {

namespace {

namespace fs = std::filesystem;

constexpr char kDefaultFolder[] = "lab-pieces";
constexpr int kMostJobs = 64;

std::string names_of_experiments() {
  std::string names;
  for (const Experiment* experiment : experiments()) names += (names.empty() ? "" : ", ") + experiment->name;
  return names;
}

Scale scale_argument(const std::string& name) {
  try {
    return scale_named(name);
  } catch (const std::invalid_argument& error) {
    tools::fail(tools::ExitCode::kUsage, "{}", error.what());
  }
}

// ---- list

void list_experiments(bool json) {
  for (const Experiment* e : experiments()) {
    if (json) {
      const nlohmann::ordered_json line = {{"number", e->number}, {"name", e->name},     {"title", e->title},
                                           {"claim", e->claim},   {"design", e->design}, {"rule", e->rule}};
      fmt::print("{}\n", line.dump());
    } else {
      fmt::print("{:2} {}: {}\n   claim: {}\n   design: {}\n   rule: {}\n", e->number, e->name, e->title, e->claim,
                 e->design, e->rule);
    }
  }
}

// ---- run

struct RunArguments {
  std::vector<std::string> names;
  std::string scale = "quick", folder = kDefaultFolder;
  std::string piece;  // the only one to be made; none: all
  int jobs = 1;
  bool again = false, json = false;
};

void print_findings(const Experiment& experiment, const Page& page, bool json) {
  for (const Finding& f : page.findings) {
    if (json) {
      const nlohmann::ordered_json line = {
          {"experiment", experiment.name}, {"claim", f.claim},  {"source", f.source}, {"measured", f.measured},
          {"verdict", name_of(f.verdict)}, {"reason", f.reason}};
      fmt::print("{}\n", line.dump());
    } else {
      fmt::print("{} {}: {} ({}): {}. {} {}\n", experiment.number, experiment.name, f.claim, f.source,
                 name_of(f.verdict), as_sentence(f.measured), as_sentence(f.reason));
    }
  }
  std::fflush(stdout);
}

// This program's arguments for one experiment in a process of its own.
std::vector<std::string> run_line(const Experiment& experiment, const RunArguments& a,
                                  const std::vector<std::string>& more) {
  std::vector<std::string> line = {"run", experiment.name, "--scale", a.scale, "--folder", a.folder};
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

void run_experiment(const Experiment& experiment, const RunArguments& a) {
  const Scale scale = scale_argument(a.scale);
  const fs::path folder = fs::path(a.folder) / experiment.name;
  if (a.again) fs::remove_all(folder);
  set_command(run_command_line(experiment.name, scale));
  Context context(scale, folder, true);
  if (!a.piece.empty()) {
    context.only(a.piece);
    try {
      experiment.run(context);
    } catch (const PieceMade&) {
      return;
    }
    tools::fail(tools::ExitCode::kUsage, "{} has no piece {}", experiment.name, tools::in_quotes(a.piece));
  }
  context.start_with([&](const std::string& key) {
    const auto code = run_side_by_side({run_line(experiment, a, {"--piece", key})}, 1).front();
    if (code != tools::ExitCode::kOk) tools::fail(code, "the process of piece {} ended with an error", key);
  });
  print_findings(experiment, experiment.run(context), a.json);
}

std::vector<tools::ExitCode> run_in_processes(const std::vector<const Experiment*>& chosen, const RunArguments& a) {
  std::vector<std::string> flags;
  if (a.again) flags.push_back("--again");
  if (a.json) flags.push_back("--json");
  std::vector<std::vector<std::string>> lines;
  for (const Experiment* experiment : chosen) lines.push_back(run_line(*experiment, a, flags));
  return run_side_by_side(lines, a.jobs);
}

std::vector<tools::ExitCode> run_in_turn(const std::vector<const Experiment*>& chosen, const RunArguments& a) {
  std::vector<tools::ExitCode> codes;
  for (const Experiment* experiment : chosen) {
    codes.push_back(tools::ExitCode::kOk);
    const auto note = [&](tools::ExitCode code, const char* what) {
      fmt::print(stderr, "rmsnorm-lab: {}: {}\n", experiment->name, tools::printable(what));
      codes.back() = code;
    };
    try {
      run_experiment(*experiment, a);
    } catch (const tools::ToolError& error) {
      note(error.code(), error.what());
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      note(tools::ExitCode::kInternal, error.what());
    }
  }
  return codes;
}

// One that fails does not keep the others from running.
void run_experiments(const RunArguments& a) {
  scale_argument(a.scale);  // refused before anything runs
  const auto chosen = experiments_named(a.names);
  const auto codes = a.jobs > 1 && chosen.size() > 1 ? run_in_processes(chosen, a) : run_in_turn(chosen, a);
  std::string failed;
  tools::ExitCode code = tools::ExitCode::kOk;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (codes[i] == tools::ExitCode::kOk) continue;
    failed += (failed.empty() ? "" : ", ") + chosen[i]->name;
    code = codes[i];
  }
  if (!failed.empty())
    tools::fail(code, "these failed: {}; run again to take up the others from where they are", failed);
}

// ---- report

struct ReportArguments {
  std::string folder = kDefaultFolder, output;
  bool json = false;
};

void write_file(const fs::path& path, const std::string& text) {
  tools::make_folder(path.parent_path());
  tools::OutputFile file(path.string());
  file.write(std::as_bytes(std::span(text)));
  file.finish();
  file.publish();
}

void write_report(const ReportArguments& a) {
  const Report report = collect_report(a.folder);
  if (const std::vector<std::string> faults = faults_of(report); !faults.empty()) {
    for (const std::string& fault : faults) fmt::print(stderr, "rmsnorm-lab: {}\n", tools::printable(fault));
    tools::fail(tools::ExitCode::kInternal, "the report has {} faults", faults.size());
  }
  const fs::path output = a.output.empty() ? fs::path(a.folder) : fs::path(a.output);
  const Markdown document = markdown(report);
  for (const auto& [name, text] : document.files) write_file(output / name, text);
  write_file(output / "report.md", document.text);
  write_file(output / "report.html", html(report));
  if (a.json) {
    for (const Chapter& chapter : report.chapters) {
      for (const Finding& f : chapter.page.findings) {
        const nlohmann::ordered_json line = {{"experiment", chapter.name},
                                             {"claim", f.claim},
                                             {"measured", f.measured},
                                             {"verdict", name_of(f.verdict)}};
        fmt::print("{}\n", line.dump());
      }
    }
    return;
  }
  fmt::print("{} experiments, verdicts: {}\n", report.chapters.size(), verdict_counts(report));
  for (const std::string& missing : report.missing) fmt::print("not in the report: {}\n", missing);
  fmt::print("{}\n{}\n", (output / "report.html").string(), (output / "report.md").string());
}

constexpr char kRunExamples[] = R"(
The pieces of an experiment are kept in FOLDER/NAME, one JSON file each: a run that was stopped goes on from there.

Examples:
  rmsnorm-lab run --scale smoke               all of them, to see that they work
  rmsnorm-lab run cost epsilon                two of them at their smallest size that has a meaning
  rmsnorm-lab run --scale full --folder full  all of them; a folder holds one scale
  rmsnorm-lab run --jobs 2                    two side by side; what measures time still runs alone)";

constexpr char kReportExamples[] = R"(
Examples:
  rmsnorm-lab report --folder full                    full/report.html, full/report.md, full/plots/
  rmsnorm-lab report --folder full --output docs/lab)";

}  // namespace

void add_list_command(CLI::App& app) {
  auto* command = app.add_subcommand("list", "List the experiments: claim, design and the rule of the verdict");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print JSON, one object a line");
  command->footer("\nExamples:\n  rmsnorm-lab list\n  rmsnorm-lab list --json");
  command->callback([json] { list_experiments(*json); });
}

void add_run_command(CLI::App& app) {
  auto* command = app.add_subcommand("run", "Run experiments");
  auto a = std::make_shared<RunArguments>();
  command->footer(kRunExamples);
  command->add_option("EXPERIMENTS", a->names, names_of_experiments() + "; all if none is named")->type_name("");
  command->add_option("--scale", a->scale, "smoke, quick or full")->type_name("NAME")->capture_default_str();
  command->add_option("--folder", a->folder, "where the pieces are kept")->type_name("FOLDER")->capture_default_str();
  command->add_option("--jobs", a->jobs, "how many experiments run side by side")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(1, kMostJobs));
  command->add_flag("--again", a->again, "remove the pieces of these experiments first");
  command->add_flag("--json", a->json, "print the findings as JSON, one object a line");
  command->add_option("--piece", a->piece)->group("");  // not in the help: `run` starts itself with it
  command->callback([a] { run_experiments(*a); });
}

void add_report_command(CLI::App& app) {
  auto* command = app.add_subcommand("report", "Write the report from the pieces, as HTML and as Markdown");
  auto a = std::make_shared<ReportArguments>();
  command->footer(kReportExamples);
  command->add_option("--folder", a->folder, "where the pieces are")->type_name("FOLDER")->capture_default_str();
  command->add_option("--output", a->output, "where the report goes; FOLDER if absent")->type_name("FOLDER");
  command->add_flag("--json", a->json, "print the ledger as JSON, one finding a line");
  command->callback([a] { write_report(*a); });
}

}  // namespace rmsnorm::lab
