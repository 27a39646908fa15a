#include "convert/onnx/layer_scale.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "convert/layer_scale.h"

namespace rmsnorm::convert::onnx {

namespace {

constexpr std::int64_t kFormatOfInitializers = 4;  // before, each had to be an input, too

class Mover {
 public:
  Mover(Model& model, const Graph& graph) : model_(model), graph_(graph) {}

  // Mul `n` with the vector in input `slot`.
  std::optional<MovedScale> move(int n, int slot);

 private:
  const pb::TensorProto* initializer(const std::string& name) const {
    return graph_.tensor(name).producer < 0 ? graph_.literal(name) : nullptr;
  }

  // The axis, counted from the end, of floats that lie along one axis alone; 0 for others, and for one number.
  static int only_axis(const pb::TensorProto* tensor) {
    if (tensor == nullptr || !is_float(tensor->data_type())) return 0;
    int axis = 0;
    for (int i = 0; i < tensor->dims_size(); ++i) {
      if (tensor->dims(i) == 1) continue;
      if (axis != 0 || tensor->dims(i) == 0) return 0;
      axis = i - tensor->dims_size();
    }
    return axis;
  }

  // Read by one node alone.
  int producer_for_one(const std::string& name) const {
    const TensorEntry& entry = graph_.tensor(name);
    return entry.uses.size() == 1 && !entry.is_output && !entry.in_subgraph ? entry.producer : -1;
  }

  std::string unique(const std::string& base) {
    std::string name = base;
    for (int i = 1; graph_.has_tensor(name) || !names_.insert(name).second; ++i) name = base + "_" + std::to_string(i);
    return name;
  }

  // Constant `slot` of node `n` is multiplied by `factors` along an axis counted from the end. False if it lacks the
  // axis or a number would not fit its type.
  bool scale(int n, int slot, const std::vector<double>& factors, int axis);

  void put(int n, int slot, Array array, const char* ending) {
    const std::string& before = graph_.input(n, slot);
    pending_.push_back({{graph_.output(n), slot, before, unique(before + ending)}, n, std::move(array)});
  }

  struct Pending {
    MovedScale::Place place;
    int node;
    Array array;
  };

  Model& model_;
  const Graph& graph_;
  std::set<std::string> names_;
  std::vector<Pending> pending_;
};

bool Mover::scale(int n, int slot, const std::vector<double>& factors, int axis) {
  const pb::TensorProto* tensor = initializer(graph_.input(n, slot));
  if (tensor == nullptr || tensor->dims_size() < -axis) return false;
  auto array = read_array(*tensor, model_.folder);
  if (!array || array->values.empty()) return false;
  const Lines lines = lines_along(array->dims, array->dims.size() - static_cast<std::size_t>(-axis));
  if (lines.length != factors.size()) return false;
  for (std::size_t i = 0; i < array->values.size(); ++i) {
    array->values[i] *= factors[i / lines.inner % lines.length];
    if (!std::isfinite(round_to_type(array->type, array->values[i]))) return false;
  }
  put(n, slot, std::move(*array), "_scaled");
  return true;
}

std::optional<MovedScale> Mover::move(int n, int slot) {
  pending_.clear();
  const pb::TensorProto* vector = initializer(graph_.input(n, slot));
  const int axis = only_axis(vector);
  if (axis == 0) return std::nullopt;
  const int type = vector->data_type();
  const auto same_type = [&](int node, int at) {
    const pb::TensorProto* tensor = initializer(graph_.input(node, at));
    return tensor != nullptr && tensor->data_type() == type;
  };
  // From the product back to the layer: perhaps a bias between.
  int layer = producer_for_one(graph_.input(n, 1 - slot)), add = -1, bias = 0;
  if (layer >= 0 && graph_.op(layer) == "Add") {
    add = layer;
    bias = initializer(graph_.input(add, 1)) != nullptr ? 1 : 0;
    layer = same_type(add, bias) ? producer_for_one(graph_.input(add, 1 - bias)) : -1;
  }
  const bool gemm = layer >= 0 && graph_.op(layer) == "Gemm", conv = layer >= 0 && graph_.op(layer) == "Conv";
  if (layer < 0 || !(gemm || conv || graph_.op(layer) == "MatMul") || !same_type(layer, 1)) return std::nullopt;
  const auto weight_rank = initializer(graph_.input(layer, 1))->dims_size();
  if (conv && int_attribute(graph_.node(layer), "group", 1) != 1) return std::nullopt;  // it could not be centred
  if (conv ? weight_rank < 3 : gemm ? weight_rank != 2 : weight_rank < 2) return std::nullopt;
  // A convolution's channels come before its places; so must the scale and a bias.
  const int channels = conv ? 1 - weight_rank : -1;
  if (axis != channels) return std::nullopt;

  Array scale_array = *read_array(*vector, model_.folder);
  const double power = power_of_scale(scale_array.values);
  if (round_to_type(type, power) != power) return std::nullopt;
  std::vector<double> factors = scale_array.values;
  for (double& factor : factors) factor /= power;
  const bool turned = gemm && int_attribute(graph_.node(layer), "transB", 0) != 0;
  if (!scale(layer, 1, factors, conv ? -weight_rank : turned ? -2 : -1)) return std::nullopt;
  if ((gemm || conv) && !graph_.input(layer, 2).empty() && !(same_type(layer, 2) && scale(layer, 2, factors, -1))) {
    return std::nullopt;
  }
  if (add >= 0 && !scale(add, bias, factors, channels)) return std::nullopt;
  put(n, slot, {type, Shape(scale_array.dims.size(), 1), {power}}, "_power");

  MovedScale moved;
  for (Pending& one : pending_) {
    pb::TensorProto& tensor = *model_.proto.mutable_graph()->add_initializer();
    tensor.set_name(one.place.now);
    store_array(tensor, one.array);
    model_.exact[one.place.now] = std::move(one.array);
    model_.proto.mutable_graph()->mutable_node(one.node)->set_input(one.place.slot, one.place.now);
    moved.places.push_back(std::move(one.place));
  }
  return moved;
}

// The converted model multiplies by one number where this one has a vector.
bool has_moved(const Graph& converted, const std::string& product, int slot) {
  const int n = converted.tensor(product).producer;
  if (n < 0 || converted.op(n) != "Mul") return false;
  const pb::TensorProto* factor = converted.literal(converted.input(n, slot));
  return factor != nullptr &&
         std::all_of(factor->dims().begin(), factor->dims().end(), [](auto length) { return length == 1; });
}

// Initialisers with these names, taken out of the graph.
std::vector<pb::TensorProto> take_out(pb::GraphProto& graph, const std::set<std::string>& names) {
  std::vector<pb::TensorProto> taken;
  auto& all = *graph.mutable_initializer();
  for (auto& tensor : all) {
    if (names.count(tensor.name()) != 0) taken.push_back(tensor);
  }
  all.erase(std::remove_if(all.begin(), all.end(), [&](const auto& t) { return names.count(t.name()) != 0; }),
            all.end());
  return taken;
}

}  // namespace

std::vector<MovedScale> move_layer_scales(Model& model, Model* converted) {
  std::vector<MovedScale> all;
  std::set<std::string> unread;
  {
    const Graph graph(model);
    if (graph.opset() < 7 || model.proto.ir_version() < kFormatOfInitializers) return all;
    std::optional<Graph> target;
    if (converted != nullptr) target.emplace(*converted);
    Mover mover(model, graph);
    for (int n = 0; n < graph.size(); ++n) {
      if (graph.op(n) != "Mul" || graph.node(n).input_size() != 2) continue;
      for (int slot = 0; slot < 2; ++slot) {
        if (target && !has_moved(*target, graph.output(n), slot)) continue;
        auto moved = mover.move(n, slot);
        if (!moved) continue;
        for (const auto& place : moved->places) {
          const TensorEntry& entry = graph.tensor(place.before);
          if (entry.uses.size() == 1 && !entry.is_output && !entry.in_subgraph) unread.insert(place.before);
        }
        all.push_back(std::move(*moved));
        break;
      }
    }
  }
  for (pb::TensorProto& tensor : take_out(*model.proto.mutable_graph(), unread)) {
    for (MovedScale& moved : all) {
      const bool its = std::any_of(moved.places.begin(), moved.places.end(),
                                   [&](const auto& place) { return place.before == tensor.name(); });
      if (its) moved.unread.push_back(tensor);
    }
  }
  return all;
}

void restore_layer_scales(Model& model, const std::vector<MovedScale>& moved, const Plan& plan) {
  std::set<std::string> centred;
  for (const Stream& stream : plan.streams) {
    if (!stream.converted) continue;
    for (const Edit& edit : stream.edits) centred.insert(edit.tensor);
    for (const Insert& insert : stream.inserts) centred.insert(insert.tensor);
  }
  pb::GraphProto& graph = *model.proto.mutable_graph();
  std::set<std::string> dropped;
  for (const MovedScale& one : moved) {
    // Its weight is centred; or what it computes is, by an operation between the layer and the product.
    const auto product = one.places.end() - 1;
    const bool needed = std::any_of(one.places.begin(), product, [&](const auto& place) {
      return centred.count(place.now) != 0 || centred.count(place.output) != 0;
    });
    if (needed) continue;
    for (const auto& place : one.places) {
      dropped.insert(place.now);
      for (auto& node : *graph.mutable_node()) {
        if (node.output_size() > 0 && node.output(0) == place.output) node.set_input(place.slot, place.before);
      }
    }
    for (const auto& tensor : one.unread) *graph.add_initializer() = tensor;
  }
  take_out(graph, dropped);
}

}  // namespace rmsnorm::convert::onnx
