// LayerScale: moved into the layer before it where a stream is converted, and left alone elsewhere.
#include "convert/onnx/layer_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "convert/onnx/opset.h"
#include "convert/onnx/rewrite.h"
#include "convert/onnx/verify.h"
#include "graphs.h"

namespace rmsnorm::convert::onnx {
namespace {

// Two branches with LayerScale, one of MatMul and Add, one of Gemm; `turned`: with transB.
pb::ModelProto two_branches(bool turned = false, bool is_read = false) {
  GraphBuilder b;
  b.input("i", {3}, pb::TensorProto::INT64).output("y");
  b.constant("table", {3, 4}, {1, 2, 3, 4, 5, 7, 9, 9, 1, 0, 0, 1});
  b.constant("w", {4}, {1, 2, 3, 4}).constant("b", {4}, {4, 3, 2, 1});
  b.constant("W", {4, 4}, {1, 2, 0, 4, 0, 1, 3, 1, 5, 5, 2, 1, 1, 0, 7, 2}).constant("c", {4}, {1, 3, 0, 2});
  b.constant("V", {4, 4}, {0, 1, 2, 2, 3, 1, 0, 1, 1, 4, 1, 0, 6, 1, 2, 5}).constant("d", {4}, {2, 5, 1, 1});
  b.constant("l", {4}, {0.3f, 0.7f, -0.1f, 0.9f}).constant("k", {1, 4}, {0.02f, 0.03f, 0.01f, -0.05f});
  b.node("Gather", {"table", "i"}, "x");
  b.node("LayerNormalization", {"x", "w", "b"}, "n");
  b.node("MatMul", {"n", "W"}, "m");
  b.node("Add", {"c", "m"}, "branch");
  b.node("Mul", {"l", "branch"}, "scaled");
  b.node("Add", {"x", "scaled"}, "x2");
  b.node("LayerNormalization", {"x2", "w", "b"}, "n2");
  auto& gemm = b.node("Gemm", {"n2", "V", "d"}, "g");
  if (turned) {
    auto& transposed = *gemm.add_attribute();
    transposed.set_name("transB");
    transposed.set_type(pb::AttributeProto::INT);
    transposed.set_i(1);
  }
  b.node("Mul", {"g", "k"}, "scaled2");
  b.node("Add", {"x2", "scaled2"}, "x3");
  b.node("LayerNormalization", {"x3", "w", "b"}, "y");
  if (is_read) b.output("g");
  return b.model;
}

struct MovedAndConverted {
  pb::ModelProto proto;
  int norms = 0;
  int inserts = 0;
};

MovedAndConverted converted_graph(const pb::ModelProto& original, Target target = Target::kOnnxPlain,
                                  bool weights_only = false) {
  Model model = parsed(original);
  const auto moved = move_layer_scales(model);
  const Graph graph(model);
  const Shapes shapes(graph);
  const Norms norms = recognise_norms(graph, shapes);
  const Plan plan = make_plan(graph, shapes, norms, {weights_only, false});
  const Changes changes = rewrite(model, graph, shapes, norms, plan, target, false);
  restore_layer_scales(model, moved, plan);
  return {model.proto, changes.norms, changes.inserted};
}

std::string proof_of(const pb::ModelProto& original, const pb::ModelProto& changed) {
  Model before = parsed(original), after = parsed(changed);
  move_layer_scales(before, &after);
  const Proof proof = prove_equal(before, after, 2);
  return proof.faults.empty() ? "equal" : proof.faults[0].site + ": " + proof.faults[0].what;
}

pb::TensorProto* tensor_named(pb::ModelProto& model, const std::string& name) {
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) {
    if (tensor.name() == name) return &tensor;
  }
  return nullptr;
}

std::vector<double> values(pb::ModelProto& model, const std::string& name) {
  pb::TensorProto* tensor = tensor_named(model, name);
  return tensor == nullptr ? std::vector<double>() : read_array(*tensor, "/nonexistent")->values;
}

// W' = M diag(l) W / s and b' = M l b / s by their definition, each rounded once; s is what remains.
void expect_moved(pb::ModelProto original, pb::ModelProto changed, const std::string& weight, const std::string& bias,
                  const std::string& scale, double power, bool turned) {
  const auto w = values(original, weight), b = values(original, bias), l = values(original, scale);
  const auto now = values(changed, weight + "_scaled"), new_bias = values(changed, bias + "_scaled");
  ASSERT_EQ(now.size(), 16u);
  ASSERT_EQ(new_bias.size(), 4u);
  EXPECT_EQ(values(changed, scale + "_power"), std::vector<double>{power});
  const auto check = [&](const std::function<std::size_t(std::size_t)>& at, const std::vector<double>& from,
                         const std::vector<double>& to) {
    double mean = 0;
    for (std::size_t o = 0; o < 4; ++o) mean += from[at(o)] * l[o] / power / 4;
    for (std::size_t o = 0; o < 4; ++o) {
      const double exact = from[at(o)] * l[o] / power - mean;
      EXPECT_NEAR(to[at(o)], exact, 0x1p-24 * std::fabs(exact) + 0x1p-50) << weight << at(o);
    }
  };
  for (std::size_t i = 0; i < 4; ++i) check([&](std::size_t o) { return turned ? o * 4 + i : i * 4 + o; }, w, now);
  check([](std::size_t o) { return o; }, b, new_bias);
  for (const std::string& name : {weight, bias, scale}) EXPECT_EQ(tensor_named(changed, name), nullptr) << name;
}

TEST(OnnxLayerScale, goes_into_the_layer_before_it) {
  for (const bool turned : {false, true}) {
    const pb::ModelProto original = two_branches(turned);
    for (const Target target : {Target::kOnnxPlain, Target::kOnnxRms23, Target::kOnnxSimplified}) {
      const MovedAndConverted done = converted_graph(original, target);
      EXPECT_EQ(done.norms, 3);
      EXPECT_EQ(done.inserts, 0);
      EXPECT_EQ(proof_of(original, done.proto), "equal");
      expect_moved(original, done.proto, "W", "c", "l", 0.5, false);
      expect_moved(original, done.proto, "V", "d", "k", 0.03125, turned);
    }
  }
}

// The layer's own output is read: it keeps its scale, and an operation centres the branch.
TEST(OnnxLayerScale, stays_where_the_branch_is_read) {
  const pb::ModelProto original = two_branches(false, true);
  MovedAndConverted done = converted_graph(original);
  EXPECT_EQ(done.norms, 3);
  EXPECT_EQ(done.inserts, 1);
  EXPECT_EQ(proof_of(original, done.proto), "equal");
  for (const char* name : {"V", "d", "k"}) EXPECT_NE(tensor_named(done.proto, name), nullptr) << name;
}

// No stream is converted: the graph is what it was.
TEST(OnnxLayerScale, goes_back) {
  pb::ModelProto original = two_branches();
  original.mutable_graph()->add_output()->set_name("x3");
  for (const char* name : {"x", "x2"}) original.mutable_graph()->add_output()->set_name(name);
  MovedAndConverted done = converted_graph(original, Target::kOnnxPlain, true);
  EXPECT_EQ(done.norms, 0);
  ASSERT_EQ(done.proto.graph().node_size(), original.graph().node_size());
  for (int n = 0; n < original.graph().node_size(); ++n) {
    EXPECT_EQ(done.proto.graph().node(n).SerializeAsString(), original.graph().node(n).SerializeAsString());
  }
  ASSERT_EQ(done.proto.graph().initializer_size(), original.graph().initializer_size());
  for (const auto& tensor : original.graph().initializer()) {
    EXPECT_EQ(values(done.proto, tensor.name()), values(original, tensor.name())) << tensor.name();
  }
}

TEST(OnnxLayerScale, mutants) {
  const pb::ModelProto original = two_branches();
  const pb::ModelProto right = converted_graph(original).proto;
  EXPECT_EQ(proof_of(original, right), "equal");
  const auto expect_seen = [&](const char* name, const std::function<void(Array&)>& change) {
    pb::ModelProto wrong = right;
    pb::TensorProto* tensor = tensor_named(wrong, name);
    ASSERT_NE(tensor, nullptr) << name;
    Array array = *read_array(*tensor, "/nonexistent");
    change(array);
    store_array(*tensor, array);
    EXPECT_NE(proof_of(original, wrong), "equal") << name;
  };
  for (const char* name : {"W_scaled", "c_scaled", "V_scaled", "d_scaled"}) {
    for (const std::size_t i : {0u, 1u, 2u, 3u}) {
      expect_seen(name, [&](Array& a) { a.values[i] += std::fabs(a.values[i]) * 0x1p-21; });
    }
  }
  for (const char* name : {"l_power", "k_power"}) {
    expect_seen(name, [](Array& a) { a.values[0] *= 2; });
    expect_seen(name, [](Array& a) { a.values[0] = -a.values[0]; });
  }
  // The scale of another branch; the layer without its scale, and the scale without its layer.
  pb::ModelProto wrong = right;
  tensor_named(wrong, "W_scaled")->mutable_raw_data()->assign(tensor_named(wrong, "V_scaled")->raw_data());
  EXPECT_NE(proof_of(original, wrong), "equal");
  pb::ModelProto before = original;
  for (const auto& [name, old] : {std::pair("W_scaled", "W"), std::pair("c_scaled", "c")}) {
    wrong = right;
    Array array = *read_array(*tensor_named(before, old), "/nonexistent");
    store_array(*tensor_named(wrong, name), array);
    EXPECT_NE(proof_of(original, wrong), "equal") << name;
    centre(array, array.dims.size() - 1, false);
    store_array(*tensor_named(wrong, name), array);
    EXPECT_NE(proof_of(original, wrong), "equal") << name;
  }
  wrong = right;
  store_array(*tensor_named(wrong, "l_power"), *read_array(*tensor_named(before, "l"), "/nonexistent"));
  EXPECT_NE(proof_of(original, wrong), "equal");
}

}  // namespace
}  // namespace rmsnorm::convert::onnx
