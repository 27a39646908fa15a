// Entry, ties and writers.
#include <algorithm>
#include <cmath>

#include "convert/checkpoint/planner.h"
#include "convert/checkpoint/table.h"
#include "convert/layer_scale.h"

namespace rmsnorm::convert::checkpoint {

using tools::in_quotes;

int Planner::tie_of_entry(const StreamParts& stream) const {
  for (const Part& part : stream.entry) {
    if (part.tie >= 0 && model_.ties[static_cast<std::size_t>(part.tie)].tied) return part.tie;
  }
  return -1;
}

// The logits change by mean(E_v) * sum(h): by nothing where the final norm's output sums to 0, or every row of E does.
bool Planner::tie_may_stay(int tie) const {
  bool sums_to_zero = true;
  for (const NormSite& site : model_.sites) {
    const bool reads =
        std::any_of(site.readers.begin(), site.readers.end(), [&](const Part& p) { return p.tie == tie; });
    if (!reads || site.weight == nullptr) continue;
    const std::vector<double> weight = read_values(*site.weight);
    sums_to_zero = sums_to_zero && std::all_of(weight.begin(), weight.end(), [&](double w) { return w == weight[0]; });
    if (site.bias == nullptr) continue;
    const std::vector<double> bias = read_values(*site.bias);
    sums_to_zero = sums_to_zero && std::all_of(bias.begin(), bias.end(), [](double b) { return b == 0; });
  }
  return sums_to_zero || rows_are_centred(*model_.ties[static_cast<std::size_t>(tie)].table, request_.chunk);
}

// For another class, which has no norm there.
bool Planner::is_tabulated(const StreamParts& stream) const { return target_ != nullptr && !stream.tabulated.empty(); }

// E' = M LN(E); a tied head keeps E.
void Planner::tabulate(StreamPlan& stream) {
  const Part& part = stream.stream->tabulated.front();
  const NormSite& norm = stream.stream->tabulated_norm.front();
  stream.note = norm.module + " is tabulated";
  std::vector<std::string> names{part.weight->name};
  if (part.tie >= 0) {
    const TieParts& tie = model_.ties[static_cast<std::size_t>(part.tie)];
    if (tie.tied && request_.tie == Tie::kKeep) {
      refuse(RefusalCode::kTie, tie.head_name,
             "the head is the embedding, whose rows become outputs of {}; use --untie to store it apart", norm.module);
    }
    if (tie.tied && !untied_[static_cast<std::size_t>(part.tie)]) untie(part.tie);
    names = tie.names;
  }
  centre_writer(part);
  for (const std::string& name : names) {
    if (by_name_.contains(name)) action(name).row_norm = {norm.weight, norm.bias, norm.site->gain, norm.epsilon};
  }
  for (const StoredTensor* tensor : {norm.weight, norm.bias}) {
    if (tensor != nullptr) tabulated_.insert(tensor->name);
  }
}

void Planner::remove_actions(const std::set<std::string>& names) {
  std::erase_if(plan_.actions, [&](const Action& action) { return names.contains(action.name); });
  by_name_.clear();
  for (std::size_t a = 0; a < plan_.actions.size(); ++a) by_name_[plan_.actions[a].name] = a;
}

// True: by the operation. Ties are undone here where the weights are to be centred and the head may not follow.
bool Planner::entry_by_op(const StreamParts& stream) {
  const Stream& recipe = *stream.stream;
  if (is_tabulated(stream) && request_.entry != Entry::kOp) return false;
  if (!recipe.why_op.empty()) {
    if (request_.entry == Entry::kWeights) {
      refuse(RefusalCode::kOpaqueEntry, recipe.name, "{}; use --entry op, which subtracts the mean there",
             recipe.why_op);
    }
    return true;
  }
  if (request_.entry == Entry::kOp) {
    if (recipe.op.at.empty()) {
      refuse(RefusalCode::kOpaqueEntry, recipe.name,
             "the recipe names no place where a program could centre this entry; use --entry weights");
    }
    return true;
  }
  if (request_.entry == Entry::kAuto && recipe.prefer_op) return true;
  const int tie = tie_of_entry(stream);
  if (tie < 0 || untied_[static_cast<std::size_t>(tie)] || tie_may_stay(tie)) return false;
  if (request_.tie != Tie::kKeep) {
    untie(tie);
    return false;
  }
  if (request_.entry == Entry::kWeights || recipe.op.at.empty()) {
    refuse(RefusalCode::kTie, model_.ties[static_cast<std::size_t>(tie)].head_name,
           "the head is the embedding, and behind a norm with parameters a centred embedding gives other logits; use "
           "--entry op, or --untie to store the head apart");
  }
  return true;
}

void Planner::plan_entry(StreamPlan& stream) {
  const StreamParts& parts = *stream.stream;
  stream.op = entry_by_op(parts);
  if (stream.op) {
    stream.note = parts.stream->why_op;
    return;
  }
  if (is_tabulated(parts)) {
    tabulate(stream);
    return;
  }
  for (const Part& part : parts.entry) {
    if (part.tie >= 0) {
      centre_table(part.tie, part);
    } else {
      centre_writer(part);
    }
  }
}

void Planner::untie(int index) {
  const TieParts& tie = model_.ties[static_cast<std::size_t>(index)];
  untied_[static_cast<std::size_t>(index)] = true;
  add_action(tie.head_name, tie.table, *tie.table, tie.table->shape);
  // A class that is told that nothing is shared wants each name.
  for (const std::string& name : tie.names) {
    if (!by_name_.contains(name)) add_action(name, tie.table, *tie.table, tie.table->shape);
  }
  set_config(tie.tie->flag, false);
  plan_.untied.push_back(tie.head_name);
  plan_.warnings.push_back(fmt::format("{} is stored apart from {}: {} more parameters", tie.head_name, tie.table->name,
                                       tie.table->elements()));
  name_with_prefix(index);
}

// A file of the inner model alone has no prefixes; with a head beside it, loaders want them.
void Planner::name_with_prefix(int index) {
  const TieParts& tie = model_.ties[static_cast<std::size_t>(index)];
  const std::string& prefix = model_.recipe.prefixes.front();
  if (prefix.empty()) return;
  for (const StoredTensor& tensor : model_.checkpoint.tensors()) {
    if (tensor.name.starts_with(prefix)) return;
  }
  if (model_.checkpoint.find(tie.head_name) != nullptr) return;
  plan_.old_prefix = model_.prefix_of(tie.tie->table + ".weight", *tie.table);
  plan_.output_prefix = prefix;
  plan_.warnings.push_back(
      fmt::format("the names of all tensors but {} begin with {} now, as beside a head", tie.head_name, prefix));
}

void Planner::centre(const StoredTensor& tensor, const Matrix& matrix, const std::vector<Range>& outputs) {
  check_float(tensor, "would be centred");
  Action& planned = action(tensor.name);
  planned.matrix = matrix;
  for (const Range& range : outputs) {
    // Several norms may read one group; it is centred once.
    if (centred_by_.insert(fmt::format("{}:{}", tensor.name, range.begin)).second) planned.centre.push_back(range);
  }
}

void Planner::centre_table(int index, const Part& part) {
  const TieParts& tie = model_.ties[static_cast<std::size_t>(index)];
  const auto centre_name = [&](const std::string& name, const StoredTensor& source) {
    check_float(source, "would be centred");
    Action& planned = action(name);
    planned.matrix = matrix_of(Layout::kTable, source.shape);
    if (centred_by_.insert(name + ":0").second) planned.centre = {{0, part.matrix.outputs()}};
  };
  for (const std::string& name : tie.names) {
    if (by_name_.contains(name)) centre_name(name, *action(name).source);
  }
  const bool head_stored = by_name_.contains(tie.head_name) && tie.tied && !untied_[static_cast<std::size_t>(index)];
  if (head_stored) centre_name(tie.head_name, *tie.table);
}

void Planner::apply_scale(const Part& part) {
  check_float(*part.scale, "scales a writer");
  const double power = power_of_scale(read_values(*part.scale));
  for (const StoredTensor* tensor : {part.weight, part.bias}) {
    if (tensor == nullptr) continue;
    Action& planned = action(tensor->name);
    planned.scale = part.scale;
    planned.divisor = power;
  }
  action(part.scale->name).fill = power;
}

void Planner::centre_writer(const Part& part) {
  if (part.tie >= 0) {
    centre_table(part.tie, part);
    return;
  }
  centre(*part.weight, part.matrix, part.outputs);
  const std::int64_t outputs = part.matrix.outputs();
  if (part.bias != nullptr) centre(*part.bias, {1, part.bias->elements() / outputs, outputs, false}, part.outputs);
  if (part.scale != nullptr) apply_scale(part);
}

}  // namespace rmsnorm::convert::checkpoint
