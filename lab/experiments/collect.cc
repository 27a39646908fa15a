#include "lab/experiments/collect.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

}  // namespace

std::vector<const Experiment*> experiments_named(const std::vector<std::string>& names) {
  if (names.empty()) return experiments();
  std::vector<const Experiment*> chosen;
  std::string known;
  for (const Experiment* experiment : experiments()) {
    if (std::find(names.begin(), names.end(), experiment->name) != names.end()) chosen.push_back(experiment);
    known += (known.empty() ? "" : ", ") + experiment->name;
  }
  for (const std::string& name : names) {
    const auto same = [&](const Experiment* experiment) { return experiment->name == name; };
    if (std::none_of(chosen.begin(), chosen.end(), same)) {
      tools::fail(tools::ExitCode::kUsage, "EXPERIMENT is {}; it must be one of {}", tools::in_quotes(name), known);
    }
  }
  return chosen;
}

std::string run_command_line(const std::string& experiment, Scale scale) {
  return fmt::format("rmsnorm-lab run {} --scale {}", experiment, name_of(scale));
}

Chapter chapter_of(const Experiment& experiment, const Context& context, Page page) {
  Chapter chapter;
  chapter.number = experiment.number;
  chapter.name = experiment.name;
  chapter.title = experiment.title;
  chapter.claim = experiment.claim;
  chapter.design = experiment.design;
  chapter.rule = experiment.rule;
  chapter.command = run_command_line(experiment.name, context.scale());
  for (const Provenance& from : context.provenance()) {
    add_once(chapter.machines, from.machine);
    add_once(chapter.commits, from.commit);
    chapter.seconds += from.seconds;
  }
  chapter.pieces = context.provenance().size();
  chapter.page = std::move(page);
  return chapter;
}

Report collect_report(const std::filesystem::path& folder) {
  Report report;
  for (const Experiment* experiment : experiments()) {
    const std::filesystem::path pieces = folder / experiment->name;
    const std::optional<Scale> scale = scale_of_pieces(pieces);
    if (!scale) {
      report.missing.push_back(experiment->name + ": not run");
      continue;
    }
    if (report.scale.empty()) report.scale = name_of(*scale);
    if (report.scale != name_of(*scale)) {
      tools::fail_input("{}: the scale is {}; it must be {} like that of the pieces before: scales do not mix",
                        tools::printable(pieces.string()), name_of(*scale), report.scale);
    }
    Context context(*scale, pieces, false);
    context.read_only();
    try {
      Page page = experiment->run(context);
      report.chapters.push_back(chapter_of(*experiment, context, std::move(page)));
    } catch (const MissingPiece& missing) {
      report.missing.push_back(experiment->name + ": " + missing.what());
    } catch (const nlohmann::json::exception& error) {
      tools::fail_input("{}: a piece is not what the experiment wrote: {}; remove it to make it again",
                        tools::printable(pieces.string()), error.what());
    }
  }
  if (report.chapters.empty()) {
    tools::fail_input("{}: the folder has the pieces of no experiment; rmsnorm-lab run makes them",
                      tools::printable(folder.string()));
  }
  return report;
}

}  // namespace rmsnorm::lab
