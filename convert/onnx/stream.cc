#include "convert/onnx/stream.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <set>

namespace rmsnorm::convert::onnx {

namespace {

constexpr std::uint32_t kAllAxes = (1u << kMaxAxis) - 1;

}  // namespace

Sensitivity::Sensitivity(const Graph& graph, const Shapes& shapes, const Norms& norms)
    : graph_(graph), shapes_(shapes), norms_(norms) {
  for (std::size_t i = 0; i < norms.all.size(); ++i) {
    if (norms.all[i].form == Form::kOperator) norm_of_root_[norms.all[i].root] = static_cast<int>(i);
  }
  node_masks_.resize(static_cast<std::size_t>(graph.size()), 0);
  for (int n = graph.size(); n-- > 0;) {  // readers come behind
    std::uint32_t all = kAllAxes;
    for (const auto& output : graph.node(n).output()) {
      if (!output.empty()) all &= mask(graph.tensor(output));
    }
    node_masks_[static_cast<std::size_t>(n)] = all;
  }
}

std::uint32_t Sensitivity::mask(const TensorEntry& entry) const {
  if (entry.is_output || entry.in_subgraph) return 0;
  std::uint32_t all = kAllAxes;
  std::vector<Use> linear_layers;
  bool carried = entry.uses.empty();
  for (const Use& use : entry.uses) {
    const std::string_view op = graph_.op(use.node);
    if (use.slot == 0 && (op == "MatMul" || op == "Gemm" || op == "Conv")) {
      linear_layers.push_back(use);
      continue;
    }
    carried = true;
    all &= of_use(use);
    if (all == 0) return 0;
  }
  // The weights of linear layers are read only where all other readers are content: this is rare, and they are large.
  for (const Use& use : linear_layers) {
    std::uint32_t content = of_use(use);
    for (int axis = -1; axis >= -kMaxAxis && carried; --axis) {
      if ((all & axis_bit(axis)) == 0) continue;
      if (ignores_shift(graph_, shapes_, use.node, {use.slot, axis})) content |= axis_bit(axis);
    }
    all &= content;
  }
  return all;
}

std::uint32_t Sensitivity::of_use(Use use) const {
  const auto norm = norm_of_root_.find(use.node);
  if (norm != norm_of_root_.end()) {
    return use.slot == 0 && norms_.all[static_cast<std::size_t>(norm->second)].ignores_mean ? axis_bit(-1) : 0;
  }
  const auto centring = norms_.centrings.find(use.node);
  if (centring != norms_.centrings.end() && use.slot == 0) return axis_bit(centring->second.axis);
  const std::string_view op = graph_.op(use.node);
  if (op == "Shape" || op == "Size") return kAllAxes;
  std::uint32_t content = 0;
  const std::uint32_t output = node_masks_[static_cast<std::size_t>(use.node)];
  for (int axis = -1; axis >= -kMaxAxis; --axis) {
    if ((output & axis_bit(axis)) == 0) continue;
    const auto operands = linear_operands(graph_, shapes_, use.node, axis);
    if (!operands) continue;
    for (const Operand& operand : *operands) {
      if (operand.slot == use.slot) content |= axis_bit(operand.axis);
    }
  }
  return content;
}

bool Sensitivity::may_shift(const std::string& tensor, int axis) const {
  return (mask(graph_.tensor(tensor)) & axis_bit(axis)) != 0;
}

std::string Sensitivity::who_minds(const std::string& tensor, int axis) const {
  std::string at = tensor;
  for (int step = 0; step <= graph_.size(); ++step) {
    const TensorEntry& entry = graph_.tensor(at);
    const std::string it = at == tensor ? "it" : at + ", into which it runs,";
    if (entry.is_output) return it + " is an output of the graph";
    if (entry.in_subgraph) return it + " is read by a graph inside a node";
    const auto minds = std::find_if(entry.uses.begin(), entry.uses.end(),
                                    [&](const Use& use) { return (of_use(use) & axis_bit(axis)) == 0; });
    if (minds == entry.uses.end()) return "";
    // Follow those who only hand it on.
    bool carried = false;
    for (int out = -1; out >= -kMaxAxis && !carried; --out) {
      for (const Operand& operand :
           linear_operands(graph_, shapes_, minds->node, out).value_or(std::vector<Operand>())) {
        if (carried || operand.slot != minds->slot || operand.axis != axis) continue;
        for (const auto& output : graph_.node(minds->node).output()) {
          if (output.empty() || may_shift(output, out) || carried) continue;
          at = output;
          axis = out;
          carried = true;
        }
      }
    }
    const pb::NodeProto& node = graph_.node(minds->node);
    if (!carried) return fmt::format("{} is read by {} {}", it, node.op_type(), label(node));
  }
  return "";
}

bool has_centred_output(const Graph& graph, const Norm& norm) {
  if (norm.form != Form::kOperator || !norm.ignores_mean) return false;
  const auto weight = graph.constant(norm.weight);
  if (!weight) return false;
  for (const double value : weight->values) {
    if (value != weight->values[0]) return false;
  }
  if (norm.bias.empty()) return true;
  const auto bias = graph.constant(norm.bias);
  if (!bias || bias->values.empty()) return false;
  double sum = 0, size = 0;
  for (const double value : bias->values) {
    sum += value;
    size += std::fabs(value);
  }
  return std::fabs(sum) <= unit_roundoff(bias->type) * size;
}

namespace {

enum class Kind { kCarried, kInsert, kCentred };

// One tensor of a stream along one axis.
struct Knot {
  std::string tensor;
  int axis = -1;
  Kind kind = Kind::kCarried;
  bool raw = false;  // an insert because somebody minds
  std::string why;
  std::vector<Use> uses;
  std::vector<int> norms;
  std::vector<int> operands;                                           // other knots
  std::vector<std::pair<std::string, std::pair<int, Use>>> constants;  // name, axis, where it is used
};

class Planner {
 public:
  Planner(const Graph& graph, const Shapes& shapes, const Norms& norms, const PlanOptions& options)
      : graph_(graph), shapes_(shapes), norms_(norms), options_(options), sensitivity_(graph, shapes, norms) {
    for (std::size_t i = 0; i < norms.all.size(); ++i) {
      const Norm& norm = norms.all[i];
      for (const auto& name : {norm.core, norm.y, norm.whole}) {
        if (!name.empty()) norm_of_output_[name] = static_cast<int>(i);
      }
    }
  }

  Plan run();

 private:
  void walk();
  int knot(const std::string& tensor, int axis);
  void visit(int index);
  void collapse();
  int find(int i) {
    return parent_[static_cast<std::size_t>(i)] == i
               ? i
               : parent_[static_cast<std::size_t>(i)] = find(parent_[static_cast<std::size_t>(i)]);
  }
  void make_streams();
  bool prune();
  void judge(Stream& stream) const;
  RefusalCode cause(const Insert& insert, bool raw) const;
  const Norm* norm_before(std::string tensor) const;
  bool is_layout(int node) const;

  const Graph& graph_;
  const Shapes& shapes_;
  const Norms& norms_;
  const PlanOptions& options_;
  Sensitivity sensitivity_;
  std::map<std::string, int> norm_of_output_;
  std::vector<bool> active_;  // norms

  std::vector<Knot> knots_;
  std::map<std::pair<std::string, int>, int> index_;
  std::deque<int> queue_;
  std::vector<int> parent_;
  Plan plan_;
};

// The norm whose output this is, behind operators that only rearrange.
const Norm* Planner::norm_before(std::string tensor) const {
  for (;;) {
    const auto found = norm_of_output_.find(tensor);
    if (found != norm_of_output_.end()) return &norms_.all[static_cast<std::size_t>(found->second)];
    const int n = graph_.tensor(tensor).producer;
    if (n < 0 || !(is_layout(n) || graph_.op(n) == "Cast" || graph_.op(n) == "Dropout")) return nullptr;
    tensor = graph_.input(n, 0);
  }
}

bool Planner::is_layout(int node) const {
  const std::string_view op = graph_.op(node);
  return op == "Transpose" || op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Flatten" ||
         op == "Identity" || op == "Slice";
}

int Planner::knot(const std::string& tensor, int axis) {
  const auto [at, fresh] = index_.try_emplace({tensor, axis}, static_cast<int>(knots_.size()));
  if (fresh) {
    knots_.push_back({});
    knots_.back().tensor = tensor;
    knots_.back().axis = axis;
    queue_.push_back(at->second);
  }
  return at->second;
}

// Decides what becomes of a tensor that the stream needs centred, and asks for its operands.
void Planner::visit(int index) {
  const std::string tensor = knots_[static_cast<std::size_t>(index)].tensor;
  const int axis = knots_[static_cast<std::size_t>(index)].axis;
  const auto decide = [&](Kind kind, bool raw, std::string why) {
    Knot& knot = knots_[static_cast<std::size_t>(index)];
    knot.kind = kind;
    knot.raw = raw;
    knot.why = std::move(why);
  };
  const int n = graph_.tensor(tensor).producer;
  const auto centring = norms_.centrings.find(n);
  if (n >= 0 && centring != norms_.centrings.end() && graph_.op(n) == "Sub" && centring->second.axis == axis) {
    return decide(Kind::kCentred, false, "its mean is subtracted already");
  }
  const auto norm = norm_of_output_.find(tensor);
  if (norm != norm_of_output_.end() && axis == -1) {
    const Norm& before = norms_.all[static_cast<std::size_t>(norm->second)];
    if (tensor == before.core && before.ignores_mean) return decide(Kind::kCentred, false, "a norm without weight");
    if (tensor == before.y && has_centred_output(graph_, before)) {
      return decide(Kind::kCentred, false, "a norm whose weight is one number");
    }
  }
  if (!sensitivity_.may_shift(tensor, axis)) {
    return decide(Kind::kInsert, true, sensitivity_.who_minds(tensor, axis));
  }
  if (n < 0) return decide(Kind::kInsert, false, "it is an input of the graph");
  const auto operands = linear_operands(graph_, shapes_, n, axis);
  const std::string_view op = graph_.op(n);
  const pb::NodeProto& node = graph_.node(n);
  if (!operands) return decide(Kind::kInsert, false, fmt::format("{} {} computes it", node.op_type(), label(node)));
  std::vector<int> next;
  std::vector<std::pair<std::string, std::pair<int, Use>>> constants;
  for (const Operand& operand : *operands) {
    const std::string& name = graph_.input(n, operand.slot);
    if (!graph_.is_constant(name)) {
      if (shapes_.rank(name).value_or(kMaxAxis) < -operand.axis) {
        return decide(Kind::kInsert, false, fmt::format("{} {} computes it", op, label(node)));
      }
      continue;
    }
    if (!is_float(shapes_.type(name))) {
      return decide(Kind::kInsert, false, fmt::format("{} is {}", name, type_name(shapes_.type(name))));
    }
    if (options_.keep_shared && graph_.tensor(name).uses.size() > 1) {
      return decide(Kind::kInsert, false, fmt::format("{} is shared and is to stay so", name));
    }
  }
  for (const Operand& operand : *operands) {
    const std::string& name = graph_.input(n, operand.slot);
    const Use use{n, operand.slot};
    if (graph_.is_constant(name)) {
      constants.push_back({name, {operand.axis, use}});
      continue;
    }
    const int other = knot(name, operand.axis);
    knots_[static_cast<std::size_t>(other)].uses.push_back(use);
    next.push_back(other);
  }
  Knot& done = knots_[static_cast<std::size_t>(index)];
  done.operands = std::move(next);
  done.constants = std::move(constants);
}

void Planner::walk() {
  knots_.clear();
  index_.clear();
  for (std::size_t i = 0; i < norms_.all.size(); ++i) {
    if (active_[i]) knots_[static_cast<std::size_t>(knot(norms_.all[i].x, -1))].norms.push_back(static_cast<int>(i));
  }
  while (!queue_.empty()) {
    const int next = queue_.front();
    queue_.pop_front();
    visit(next);
  }
  collapse();
}

// Several inserts that only one node reads become one behind that node; one before a node that only rearranges moves
// behind it, where the axis is more often the last.
void Planner::collapse() {
  std::vector<int> order(knots_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return graph_.tensor(knots_[static_cast<std::size_t>(a)].tensor).producer <
           graph_.tensor(knots_[static_cast<std::size_t>(b)].tensor).producer;
  });
  for (const int i : order) {
    Knot& knot = knots_[static_cast<std::size_t>(i)];
    if (knot.kind != Kind::kCarried || knot.operands.empty()) continue;
    int inserts = 0, exclusive = 0;
    for (const int o : knot.operands) {
      const Knot& operand = knots_[static_cast<std::size_t>(o)];
      if (operand.kind == Kind::kCarried) inserts = -1000;
      if (operand.kind != Kind::kInsert) continue;
      ++inserts;
      exclusive += operand.uses.size() == 1 && operand.norms.empty() ? 1 : 0;
    }
    const int n = graph_.tensor(knot.tensor).producer;
    const bool several = inserts >= 2 && exclusive == inserts;
    const bool moves = inserts == 1 && exclusive == 1 && knot.operands.size() == 1 && is_layout(n);
    if (!several && !moves) continue;
    for (const int o : knot.operands) {
      Knot& operand = knots_[static_cast<std::size_t>(o)];
      if (operand.kind != Kind::kInsert) continue;
      operand.kind = Kind::kCentred;  // left out: nobody reads it any more
      operand.uses.clear();
      knot.raw = operand.raw;
      knot.why = operand.why;
    }
    knot.kind = Kind::kInsert;
    knot.operands.clear();
    knot.constants.clear();
  }
}

// A norm whose own operation would be the only use of it gains nothing.
bool Planner::prune() {
  bool changed = false;
  for (const Knot& knot : knots_) {
    if (knot.kind != Kind::kInsert || knot.norms.size() != 1 || !knot.uses.empty()) continue;
    const std::size_t norm = static_cast<std::size_t>(knot.norms[0]);
    active_[norm] = false;
    const Insert insert{knot.tensor, knot.axis, {}, knot.norms, knot.why};
    Verdict& verdict = plan_.verdicts[norm];
    verdict.code = cause(insert, knot.raw);
    verdict.why =
        fmt::format("{}: {}; an operation that centres it would serve this norm alone", knot.tensor, knot.why);
    changed = true;
  }
  return changed;
}

RefusalCode Planner::cause(const Insert& insert, bool raw) const {
  if (options_.weights_only) return RefusalCode::kOpaqueEntry;
  if (norm_before(insert.tensor) != nullptr) return RefusalCode::kPostNorm;
  if (raw) return RefusalCode::kRawTap;
  const int n = graph_.tensor(insert.tensor).producer;
  if (n >= 0 &&
      (graph_.op(n) == "DequantizeLinear" || graph_.op(n) == "QLinearMatMul" ||
       graph_.op(n) == "com.microsoft:MatMulNBits" || graph_.op(n) == "com.microsoft:DynamicQuantizeMatMul")) {
    return RefusalCode::kQuantisedWriter;
  }
  return RefusalCode::kNoGain;
}

void Planner::make_streams() {
  parent_.resize(knots_.size());
  std::iota(parent_.begin(), parent_.end(), 0);
  for (std::size_t i = 0; i < knots_.size(); ++i) {
    for (const int o : knots_[i].operands) parent_[static_cast<std::size_t>(find(o))] = find(static_cast<int>(i));
  }
  std::map<int, int> stream_of;
  // In the order of the first norm.
  for (std::size_t k = 0; k < norms_.all.size(); ++k) {
    if (!active_[k]) continue;
    const int root = find(index_.at({norms_.all[k].x, -1}));
    const auto [at, fresh] = stream_of.try_emplace(root, static_cast<int>(plan_.streams.size()));
    if (fresh) plan_.streams.emplace_back();
    plan_.streams[static_cast<std::size_t>(at->second)].norms.push_back(static_cast<int>(k));
    plan_.verdicts[k].stream = at->second;
  }
  std::map<std::pair<int, std::pair<std::string, int>>, std::size_t> edits;
  for (std::size_t i = 0; i < knots_.size(); ++i) {
    const Knot& knot = knots_[i];
    const auto found = stream_of.find(find(static_cast<int>(i)));
    if (found == stream_of.end()) continue;
    Stream& stream = plan_.streams[static_cast<std::size_t>(found->second)];
    if (knot.kind == Kind::kInsert) {
      stream.inserts.push_back({knot.tensor, knot.axis, knot.uses, knot.norms, knot.why});
      if (knot.raw) stream.taps.push_back(knot.tensor);
    }
    for (const auto& [name, where] : knot.constants) {
      const auto [at, fresh] = edits.try_emplace({found->second, {name, where.first}}, stream.edits.size());
      if (fresh) stream.edits.push_back({name, where.first, {}, false});
      Edit& edit = stream.edits[at->second];
      if (std::find(edit.uses.begin(), edit.uses.end(), where.second) == edit.uses.end()) {
        edit.uses.push_back(where.second);
      }
    }
  }
}

void Planner::judge(Stream& stream) const {
  if (options_.weights_only && !stream.inserts.empty()) {
    stream.code = RefusalCode::kOpaqueEntry;
    stream.why = fmt::format("{} cannot be centred by weights: {}; allow an operation with --entry auto",
                             stream.inserts[0].tensor, stream.inserts[0].why);
    return;
  }
  if (stream.inserts.size() < stream.norms.size()) {
    stream.converted = true;
    return;
  }
  const Insert* shown = &stream.inserts[0];
  for (const Insert& insert : stream.inserts) {
    const bool raw = std::find(stream.taps.begin(), stream.taps.end(), insert.tensor) != stream.taps.end();
    const RefusalCode code = cause(insert, raw);
    if (code < stream.code) {
      stream.code = code;
      shown = &insert;
    }
  }
  const Norm* before = norm_before(shown->tensor);
  stream.why = fmt::format(
      "{} operations would be inserted for {} norms; {}{}: {}", stream.inserts.size(), stream.norms.size(),
      shown->tensor, before != nullptr ? " is the output of a norm with a weight" : " is not centred", shown->why);
}

Plan Planner::run() {
  active_.assign(norms_.all.size(), false);
  plan_.verdicts.resize(norms_.all.size());
  for (std::size_t i = 0; i < norms_.all.size(); ++i) {
    active_[i] = norms_.all[i].fault.empty();
    plan_.verdicts[i].why = norms_.all[i].fault;
  }
  constexpr int kMostRounds = 64;
  int round = 0;
  do {
    walk();
  } while (prune() && ++round < kMostRounds);
  make_streams();
  for (std::size_t s = 0; s < plan_.streams.size(); ++s) {
    Stream& stream = plan_.streams[s];
    judge(stream);
    for (const int norm : stream.norms) {
      Verdict& verdict = plan_.verdicts[static_cast<std::size_t>(norm)];
      verdict.converted = stream.converted;
      verdict.code = stream.code;
      verdict.why = stream.why;
      plan_.converted += stream.converted ? 1 : 0;
    }
  }
  // A constant is shared where somebody outside the converted streams, or another axis, reads it.
  std::map<std::string, std::set<std::pair<int, Use>>> read;
  for (const Stream& stream : plan_.streams) {
    for (const Edit& edit : stream.edits) {
      for (const Use& use : edit.uses) {
        if (stream.converted) read[edit.tensor].insert({edit.axis, use});
      }
    }
  }
  for (Stream& stream : plan_.streams) {
    for (Edit& edit : stream.edits) {
      const TensorEntry& entry = graph_.tensor(edit.tensor);
      const auto& uses = read[edit.tensor];
      const bool one_axis = std::all_of(uses.begin(), uses.end(), [&](const auto& u) { return u.first == edit.axis; });
      edit.shared = !one_axis || uses.size() != entry.uses.size() || entry.is_output || entry.in_subgraph;
    }
  }
  return std::move(plan_);
}

}  // namespace

Plan make_plan(const Graph& graph, const Shapes& shapes, const Norms& norms, const PlanOptions& options) {
  return Planner(graph, shapes, norms, options).run();
}

}  // namespace rmsnorm::convert::onnx
