#include "convert/checkpoint/report.h"

#include <filesystem>

#include "convert/checkpoint/target.h"
#include "rmsnorm/rmsnorm.h"

namespace rmsnorm::convert::checkpoint {

namespace {

// Sites of one pattern are one line: they differ in their index only.
struct Line {
  std::string name;
  std::string does;
  std::string detail;
  int count = 0;
};

void add_line(std::vector<Line>& lines, const std::string& name, const std::string& does, const std::string& detail) {
  for (Line& line : lines) {
    if (line.name != name || line.does != does || line.detail != detail) continue;
    ++line.count;
    return;
  }
  lines.push_back({name, does, detail, 1});
}

void print_lines(const std::vector<Line>& lines, std::string& text) {
  std::size_t names = 0;
  std::size_t does = 0;
  for (const Line& line : lines) {
    names = std::max(names, line.name.size());
    does = std::max(does, line.does.size());
  }
  for (const Line& line : lines) {
    text += tools::printable(
        fmt::format("  {:>4} x {:<{}}  {:<{}}  {}", line.count, line.name, names, line.does, does, line.detail));
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  }
}

std::unordered_map<std::string, const Action*> by_name(const Plan& plan) {
  std::unordered_map<std::string, const Action*> actions;
  for (const Action& action : plan.actions) {
    actions[action.name] = &action;
    for (const Action& part : action.parts) actions[part.name] = &part;
  }
  return actions;
}

std::string epsilon_text(double epsilon) { return fmt::format("epsilon {:g}", epsilon); }

std::string stream_entry(const StreamPlan& stream) {
  if (!stream.op) return "centred by weights";
  const EntryOp& op = stream.stream->stream->op;
  return fmt::format("centred by an operation at the {} of {}", name_of(kSides, op.side), op.at);
}

std::string site_does(const SitePlan& site, Purpose purpose) {
  const std::string norm = purpose == Purpose::kConvert ? "LayerNorm -> RMSNorm" : "norm";
  if (site.site->weight == nullptr) return norm + ", no parameters";
  switch (site.folded) {
    case Folded::kNone:
      return norm + ", parameters kept";
    case Folded::kBias:
      return norm + ", bias folded";
    default:
      return norm + ", weight and bias folded";
  }
}

void print_stream(const Plan& plan, const StreamPlan& stream, int index, Purpose purpose, std::string& text) {
  const auto actions = by_name(plan);
  text += fmt::format("stream {}, width {}", stream.stream->stream->name, stream.stream->width);
  if (purpose == Purpose::kConvert) text += ": " + stream_entry(stream);
  text += stream.note.empty() ? "\n" : " (" + stream.note + ")\n";
  const auto parts = [&](const char* title, const std::vector<Part>& items) {
    std::vector<Line> lines;
    for (const Part& part : items) {
      const auto found = actions.find(part.weight->name);
      add_line(lines, part.item->module, found == actions.end() ? "left out" : found->second->what(), "");
    }
    if (!lines.empty()) text += fmt::format(" {}\n", title);
    print_lines(lines, text);
  };
  if (purpose == Purpose::kConvert) {
    parts("entry", stream.stream->entry);
    parts("writers", stream.stream->writers);
  }
  std::vector<Line> lines;
  for (const SitePlan& site : plan.sites) {
    if (site.site->stream != index) continue;
    std::string readers;
    for (const Item& item : site.site->site->readers) readers += (readers.empty() ? "-> " : ", ") + item.module;
    add_line(lines, site.site->site->norm, site_does(site, purpose) + ", " + epsilon_text(site.site->epsilon),
             readers + (site.note.empty() ? "" : " (" + site.note + ")"));
  }
  if (!lines.empty()) text += " sites\n";
  print_lines(lines, text);
}

void print_local(const Plan& plan, Purpose purpose, std::string& text) {
  std::vector<Line> lines;
  for (const SitePlan& site : plan.sites) {
    if (site.site->stream >= 0) continue;
    std::string writers;
    for (const Item& item : site.site->site->writers) writers += (writers.empty() ? "<- " : ", ") + item.module;
    add_line(lines, site.site->site->norm, site_does(site, purpose) + ", " + epsilon_text(site.site->epsilon), writers);
  }
  if (lines.empty()) return;
  text += "norms apart from the streams\n";
  print_lines(lines, text);
}

Json sites_json(const Model& model, const Plan& plan) {
  Json sites = Json::array();
  for (const SitePlan& site : plan.sites) {
    sites.push_back({{"module", model.known_as(site.site->module)},
                     {"epsilon", site.site->epsilon},
                     {"gain", site.site->weight == nullptr ? "none" : name_of(kGains, site.site->site->gain)},
                     {"folded", folded_name(site.folded)}});
  }
  return sites;
}

Json entry_json(const Model& model, const Plan& plan) {
  Json entry = Json::array();
  for (const StreamPlan& stream : plan.streams) {
    if (!stream.op) continue;
    const EntryOp& op = stream.stream->stream->op;
    entry.push_back({{"stream", stream.stream->stream->name},
                     {"module", model.known_as(op.at)},
                     {"side", name_of(kSides, op.side)}});
  }
  return entry;
}

}  // namespace

Json provenance_of(const Model& model, const Plan& plan, const Request& request, Purpose purpose) {
  Json json;
  json["format"] = 1;
  json["program"] = "rmsnorm";
  json["version"] = rn_version();
  json["family"] = model.recipe.family;
  std::filesystem::path source = std::filesystem::path(request.input).lexically_normal();
  if (source.filename().empty()) source = source.parent_path();
  json["source"] = source.filename().string();
  json["operations"] = {{"command", purpose == Purpose::kFold ? "fold" : "convert"},
                        {"affine", name_of(kAffines, plan.affine)},
                        {"target", purpose == Purpose::kFold ? "stock" : target_name(request.target)},
                        {"dtype", request.type ? rn_type_name(*request.type) : "same"},
                        {"carry_rounding", request.carry_rounding},
                        {"untied", plan.untied}};
  json["architectures"] = model.config.json().value("architectures", Json::array());
  const bool convert = purpose == Purpose::kConvert && request.target != Target::kLlama;
  json["sites"] = convert ? sites_json(model, plan) : Json::array();
  json["entry"] = convert ? entry_json(model, plan) : Json::array();
  json["biases"] = plan.new_biases;
  return json;
}

void describe(const Model& model, const Plan& plan, Purpose purpose, Report& report) {
  Json& json = report.json;
  json["family"] = model.recipe.family;
  json["command"] = purpose == Purpose::kFold ? "fold" : "convert";
  Json streams = Json::array();
  for (const StreamPlan& stream : plan.streams) {
    streams.push_back({{"name", stream.stream->stream->name},
                       {"width", stream.stream->width},
                       {"entry", purpose == Purpose::kFold ? "untouched"
                                 : stream.op               ? "op"
                                                           : "weights"},
                       {"note", stream.note}});
  }
  json["streams"] = std::move(streams);
  json["sites"] = sites_json(model, plan);
  for (std::size_t i = 0; i < plan.sites.size(); ++i) {
    if (!plan.sites[i].note.empty()) json["sites"][i]["note"] = plan.sites[i].note;
  }
  Json tensors = Json::array();
  for (const Action& action : plan.actions) {
    if (!action.copied() || action.source->name != action.name) {
      tensors.push_back(
          {{"name", action.name}, {"dtype", action.dtype}, {"shape", action.shape}, {"does", action.what()}});
    }
  }
  json["tensors"] = std::move(tensors);
  json["tensors_kept"] = plan.actions.size() - json["tensors"].size();
  json["warnings"] = plan.warnings;
  json["untied"] = plan.untied;
  json["parameters_added"] = plan.parameters_added;
  json["bytes_added"] = plan.bytes_added;

  std::string& text = report.text;
  text += fmt::format("{}: {} tensors, {} of them changed\n", model.recipe.family, plan.actions.size(),
                      json["tensors"].size());
  for (std::size_t s = 0; s < plan.streams.size(); ++s) {
    print_stream(plan, plan.streams[s], static_cast<int>(s), purpose, text);
  }
  print_local(plan, purpose, text);
  for (const std::string& warning : plan.warnings) text += "warning: " + tools::printable(warning) + "\n";
  text += fmt::format("size: {:+} parameters, {:+} bytes\n", plan.parameters_added, plan.bytes_added);
}

}  // namespace rmsnorm::convert::checkpoint
