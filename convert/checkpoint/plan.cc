#include "convert/checkpoint/plan.h"

#include <algorithm>
#include <cmath>

#include "convert/checkpoint/planner.h"
#include "tools/formats/safetensors_dtype.h"

namespace rmsnorm::convert::checkpoint {

using tools::in_quotes;

std::uint64_t Action::bytes() const {
  if (copied() && !rows) return source->bytes;
  return static_cast<std::uint64_t>(*tools::element_count(shape)) *
         static_cast<std::uint64_t>(tools::safetensors_bits(dtype).value_or(8) / 8);
}

std::string Plan::output_name(const Action& action) const {
  const bool head = std::find(untied.begin(), untied.end(), action.name) != untied.end();
  if (head || output_prefix.empty() || !action.name.starts_with(old_prefix)) return action.name;
  return output_prefix + action.name.substr(old_prefix.size());
}

std::string Action::what() const {
  if (!parts.empty()) {
    std::string text = parts.size() == 1 ? "from " : "join of ";
    for (std::size_t p = 0; p < parts.size(); ++p) {
      text += fmt::format("{}{}{} ({})", p == 0 ? "" : ", ", parts[p].name, parts[p].rows ? " in part" : "",
                          parts[p].what());
    }
    return text;
  }
  if (diagonal) return "identity matrix";
  if (fill) return fmt::format("set to {}", *fill);
  std::string text = source == nullptr ? "create" : source->name != name ? "copy of " + source->name : "";
  const auto add = [&](bool does, const char* word) {
    if (does) text += (text.empty() ? "" : ", ") + std::string(word);
  };
  add(!terms.empty(), "add W b");
  add(row_norm.has_value(), "tabulate norm");
  add(!folds.empty(), "fold weight");
  add(scale != nullptr, "fold LayerScale");
  const bool whole = centre.size() == 1 && centre.front().end - centre.front().begin == matrix.outputs();
  add(!centre.empty(), whole ? "centre" : "centre groups");
  return text.empty() ? "keep" : text;
}

const char* folded_name(Folded folded) {
  return folded == Folded::kNone ? "none" : folded == Folded::kBias ? "bias" : "full";
}

Planner::Planner(const Model& model, const Request& request, Purpose purpose)
    : model_(model), request_(request), purpose_(purpose), affine_(request.affine) {
  if (purpose == Purpose::kConvert) target_ = find_target(model.recipe, target_name(request.target));
  if (affine_ == Affine::kAuto) {
    affine_ = purpose == Purpose::kFold ? Affine::kFull : target_ != nullptr ? target_->affine : Affine::kKeep;
  }
  plan_.affine = affine_;
  untied_.assign(model.ties.size(), false);
  plan_.config = model.config.json();
}

void Planner::begin_with_copies() {
  for (const StoredTensor& tensor : model_.checkpoint.tensors()) {
    Action action;
    action.name = tensor.name;
    action.source = &tensor;
    action.shard = tensor.shard;
    action.dtype = tensor.dtype;
    action.shape = tensor.shape;
    by_name_[tensor.name] = plan_.actions.size();
    plan_.actions.push_back(std::move(action));
  }
}

Action& Planner::action(const std::string& name) { return plan_.actions[by_name_.at(name)]; }

Action& Planner::add_action(const std::string& name, const StoredTensor* source, const StoredTensor& like,
                            tools::Shape shape) {
  const auto [at, fresh] = by_name_.emplace(name, plan_.actions.size());
  if (fresh) plan_.actions.emplace_back();
  Action& action = plan_.actions[at->second];
  const std::size_t shard = fresh ? like.shard : action.shard;
  action = Action{};
  action.name = name;
  action.source = source;
  action.shard = shard;
  action.dtype = like.dtype;
  action.shape = std::move(shape);
  return action;
}

void Planner::set_config(const std::string& path, const Json& value) {
  Json* at = &plan_.config;
  std::size_t from = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', from)) {
    at = &(*at)[path.substr(from, dot - from)];
    if (!at->is_object()) *at = Json::object();
    from = dot + 1;
  }
  Json& place = (*at)[path.substr(from)];
  if (place == value) return;
  place = value;
  plan_.config_changed = true;
}

void Planner::check_float(const StoredTensor& tensor, const char* what) const {
  if (tensor.row_type()) {
    const std::string stem = tensor.name.ends_with(".weight") ? tensor.name : tensor.name + ".";
    for (const char* companion : {"_scale", "_scale_inv", "_zero_point"}) {
      if (model_.checkpoint.find(stem + companion) == nullptr) continue;
      refuse(RefusalCode::kQuantisedWriter, tensor.name,
             "{} says that it is quantised, and it {}; convert the original model, then quantise that",
             in_quotes(stem + companion), what);
    }
    return;
  }
  refuse(RefusalCode::kQuantisedWriter, tensor.name,
         "its type is {} and it {}; it must be F32, F16, BF16 or F64: convert the original model, then quantise that",
         in_quotes(tensor.dtype), what);
}

// The type of a changed tensor; parts of one get the same.
void Planner::settle_type(Action& action) {
  const std::string wanted = request_.type ? std::string(tools::safetensors_name(*request_.type)) : "";
  if (action.parts.empty()) {
    if (!action.copied() && request_.type) action.dtype = wanted;
    return;
  }
  const Action& first = action.parts.front();
  bool change = false;
  for (const Action& part : action.parts) change = change || !part.copied() || part.dtype != first.dtype;
  for (Action& part : action.parts) {
    if (change && request_.type) part.dtype = wanted;
    if (part.source != nullptr && part.dtype != part.source->dtype) {
      check_float(*part.source, "is joined with a tensor that changes");
    }
    if (part.dtype != first.dtype) {
      refuse(RefusalCode::kUnknown, action.name,
             "it is made of {}, of type {}, and {}, of type {}; they must have one type: choose it with --dtype",
             first.name, first.dtype, part.name, part.dtype);
    }
  }
  action.dtype = first.dtype;
}

// The types of changed tensors, and what the checkpoint grows by.
void Planner::count_sizes() {
  for (Action& action : plan_.actions) {
    settle_type(action);
    plan_.bytes_added += static_cast<std::int64_t>(action.bytes());
    plan_.parameters_added += *tools::element_count(action.shape);
  }
  for (const StoredTensor& tensor : model_.checkpoint.tensors()) {
    plan_.bytes_added -= static_cast<std::int64_t>(tensor.bytes);
    plan_.parameters_added -= tensor.elements();
  }
  for (const char* key : {"torch_dtype", "dtype"}) {
    const Json now = plan_.config.value(key, Json());
    if (!request_.type || !now.is_string()) continue;
    plan_.warnings.push_back(
        fmt::format("{} of {} is {} and changed tensors are {}: a loader may round them to the former", key,
                    kConfigFile, now.get<std::string>(), rn_type_name(*request_.type)));
  }
}

void Planner::mark_finite() {
  for (Action& action : plan_.actions) {
    action.finite = action.source == nullptr || !model_.inert.contains(action.source->name);
    for (Action& part : action.parts) part.finite = true;
  }
}

void Planner::warn_by_rules() {
  if (purpose_ == Purpose::kConvert) {
    const bool by_weights =
        std::any_of(plan_.streams.begin(), plan_.streams.end(), [](const StreamPlan& stream) { return !stream.op; });
    plan_.warnings.push_back(std::string("hidden_states[i], where a class returns them, are the stream, which loses ") +
                             "its mean" +
                             (by_weights ? "; inputs_embeds of a caller must have mean 0, or use --entry op" : ""));
  }
  for (const Rule& rule : model_.recipe.warnings) {
    if (holds(rule.when, model_.config)) plan_.warnings.push_back(rule.text);
  }
}

Plan Planner::make() {
  if (purpose_ == Purpose::kConvert && model_.recipe.rms) {
    refuse(RefusalCode::kNormKind, model_.recipe.family,
           "its norms are RMSNorm already, there is nothing to convert; `rmsnorm fold` folds their weights");
  }
  begin_with_copies();
  for (const NormSite& site : model_.sites) {
    for (const Part& reader : site.readers) read_by_[weight_target(reader)].push_back(&site);
  }
  for (const StreamParts& stream : model_.streams) plan_.streams.push_back({&stream, false, ""});
  if (purpose_ == Purpose::kConvert) {
    for (std::size_t t = 0; t < untied_.size(); ++t) {
      if (request_.tie == Tie::kUntie && model_.ties[t].tied) untie(static_cast<int>(t));
    }
    for (StreamPlan& stream : plan_.streams) plan_entry(stream);
    for (const StreamPlan& stream : plan_.streams) {
      for (const Part& part : stream.stream->writers) centre_writer(part);
    }
    for (const NormSite& site : model_.sites) {
      for (const Part& part : site.writers) centre_writer(part);
    }
  }
  for (const NormSite& site : model_.sites) {
    SitePlan& planned = plan_.sites.emplace_back();
    planned.site = &site;
    plan_site(planned);
  }
  plan_target();
  mark_finite();
  warn_by_rules();
  count_sizes();
  return std::move(plan_);
}

Plan make_plan(const Model& model, const Request& request, Purpose purpose) {
  return Planner(model, request, purpose).make();
}

}  // namespace rmsnorm::convert::checkpoint
