// What is taken for a LayerNorm, how an axis is followed, and what a plan says, on graphs of a few nodes.
#include <gtest/gtest.h>

#include <cmath>

#include "convert/onnx/opset.h"
#include "convert/onnx/stream.h"
#include "graphs.h"

namespace rmsnorm::convert::onnx {
namespace {

struct Understood {
  explicit Understood(const GraphBuilder& builder)
      : model(parsed(builder.model)), graph(model), shapes(graph), norms(recognise_norms(graph, shapes)) {}
  Model model;
  Graph graph;
  Shapes shapes;
  Norms norms;
  int node(const std::string& output) const { return graph.tensor(output).producer; }
};

TEST(OnnxRecognise, written_out) {
  GraphBuilder b;
  b.input("x", {2, 4}).output("y").constant("w", {4}, {1, 2, 3, 4}).constant("b", {1, 4}, {1, 2, 3, 4});
  b.written_out("x", "n");
  b.node("Mul", {"w", "n"}, "scaled");
  b.node("Add", {"scaled", "b"}, "y");
  const Understood it(b);
  ASSERT_EQ(it.norms.all.size(), 1u);
  const Norm& norm = it.norms.all[0];
  EXPECT_EQ(norm.fault, "");
  EXPECT_EQ(norm.x, "x");
  EXPECT_EQ(norm.core, "n");
  EXPECT_EQ(norm.y, "scaled");
  EXPECT_EQ(norm.whole, "y");
  EXPECT_EQ(norm.weight, "w");
  EXPECT_EQ(norm.bias, "b");
  EXPECT_FLOAT_EQ(static_cast<float>(norm.epsilon), 1e-5f);
}

TEST(OnnxRecognise, a_mean_that_others_read_makes_it_none) {
  GraphBuilder b;
  b.input("x", {2, 4}).output("n").output("n_mean");
  b.written_out("x", "n");
  EXPECT_TRUE(Understood(b).norms.all.empty());
}

TEST(OnnxRecognise, axes_from_the_front_need_the_rank) {
  for (const bool known : {true, false}) {
    GraphBuilder b;
    b.output("n");
    if (known) {
      b.input("x", {2, 3, 4});
    } else {
      b.model.mutable_graph()->add_input()->set_name("x");
    }
    b.written_out("x", "n", 2);
    const Understood it(b);
    EXPECT_EQ(it.norms.all.size(), known ? 1u : 0u);
    if (known) EXPECT_EQ(it.norms.all[0].fault, "");
  }
}

TEST(OnnxRecognise, another_deviation_makes_it_none) {
  GraphBuilder b;
  b.input("x", {2, 4}).input("z", {2, 4}).output("n");
  b.written_out("x", "n");
  // The square is of z's deviation.
  pb::AttributeProto& axes = *b.node("ReduceMean", {"z"}, "zm").add_attribute();
  axes.set_name("axes");
  axes.add_ints(-1);
  b.node("Sub", {"z", "zm"}, "zd");
  for (auto& node : *b.model.mutable_graph()->mutable_node()) {
    if (node.op_type() == "Pow") node.set_input(0, "zd");
  }
  EXPECT_TRUE(Understood(b).norms.all.empty());
}

// output axis -> what must be centred
std::string asked(const Understood& it, const std::string& output, int axis) {
  const auto operands = linear_operands(it.graph, it.shapes, it.node(output), axis);
  if (!operands) return "none";
  std::string text;
  for (const Operand& operand : *operands) text += fmt::format("{}:{} ", operand.slot, operand.axis);
  return text;
}

TEST(OnnxLinear, layouts) {
  GraphBuilder b;
  b.input("x", {-1, 6, 4}).output("x").whole("shape", {0, 0, 2, 2}).whole("flat", {-1, 4}).whole("mix", {-1, 3, 8});
  b.whole("last", {-1}).whole("first", {0}).whole("zero", {0});
  auto& perm = *b.node("Transpose", {"x"}, "t").add_attribute();
  perm.set_name("perm");
  for (const int axis : {0, 2, 1}) perm.add_ints(axis);
  b.node("Reshape", {"x", "shape"}, "heads");
  b.node("Reshape", {"x", "flat"}, "rows");
  b.node("Reshape", {"x", "mix"}, "mixed");
  b.node("Unsqueeze", {"x", "first"}, "u");
  b.node("Unsqueeze", {"x", "last"}, "ul");
  b.node("Gather", {"x", "zero"}, "g");
  const Understood it(b);
  EXPECT_EQ(asked(it, "t", -1), "0:-2 ");
  EXPECT_EQ(asked(it, "t", -2), "0:-1 ");
  EXPECT_EQ(asked(it, "heads", -3), "0:-2 ");
  EXPECT_EQ(asked(it, "heads", -1), "none");
  EXPECT_EQ(asked(it, "rows", -1), "0:-1 ");
  EXPECT_EQ(asked(it, "rows", -2), "none");
  EXPECT_EQ(asked(it, "mixed", -1), "none");
  EXPECT_EQ(asked(it, "u", -1), "0:-1 ");
  EXPECT_EQ(asked(it, "u", -4), "none");
  EXPECT_EQ(asked(it, "ul", -2), "0:-1 ");
  EXPECT_EQ(asked(it, "ul", -1), "none");
  EXPECT_EQ(asked(it, "g", -1), "0:-1 ");
}

TEST(OnnxLinear, products) {
  GraphBuilder b;
  b.input("x", {2, 6, 4}).input("p", {2, 6, 1}).input("v", {4}).output("x").constant("s", {}, {2});
  b.constant("w", {4, 3}, std::vector<float>(12, 1));
  b.node("Mul", {"x", "p"}, "by_position");
  b.node("Mul", {"s", "x"}, "by_number");
  b.node("Mul", {"x", "v"}, "by_channel");
  b.node("Div", {"p", "x"}, "inverse");
  b.node("MatMul", {"x", "w"}, "m");
  auto& turn = *b.node("Gemm", {"v", "w", "v"}, "gemm").add_attribute();
  turn.set_name("transB");
  turn.set_i(1);
  const Understood it(b);
  EXPECT_EQ(asked(it, "by_position", -1), "0:-1 ");
  EXPECT_EQ(asked(it, "by_number", -1), "1:-1 ");
  EXPECT_EQ(asked(it, "by_channel", -1), "none");
  EXPECT_EQ(asked(it, "inverse", -1), "none");
  EXPECT_EQ(asked(it, "m", -1), "1:-1 ");
  EXPECT_EQ(asked(it, "m", -2), "0:-2 ");
  EXPECT_EQ(asked(it, "gemm", -1), "1:-2 2:-1 ");
}

TEST(OnnxStream, a_linear_reader_that_ignores_a_mean_is_no_tap) {
  for (const float last : {-3.0f, -2.9f}) {
    GraphBuilder b;
    b.input("i", {5}, pb::TensorProto::INT64).output("y").output("r");
    b.constant("table", {3, 2}, {1, 2, 3, 4, 5, 7}).constant("w", {2}, {1, 2}).constant("reader", {2, 1}, {3, last});
    b.node("Gather", {"table", "i"}, "x");
    b.node("LayerNormalization", {"x", "w"}, "y");
    b.node("MatMul", {"x", "reader"}, "r");
    const Understood it(b);
    EXPECT_EQ(make_plan(it.graph, it.shapes, it.norms, {}).converted, last == -3.0f ? 1 : 0);
  }
}

TEST(OnnxStream, defaults_that_callers_may_replace_are_no_constants) {
  for (const bool overridable : {false, true}) {
    GraphBuilder b;
    b.input("i", {5}, pb::TensorProto::INT64).output("y");
    b.constant("table", {3, 2}, {1, 2, 3, 4, 5, 7}).constant("w", {2}, {1, 2});
    if (overridable) b.input("table", {3, 2});
    b.node("Gather", {"table", "i"}, "x");
    b.node("LayerNormalization", {"x", "w"}, "y");
    const Understood it(b);
    EXPECT_EQ(make_plan(it.graph, it.shapes, it.norms, {}).converted, overridable ? 0 : 1);
  }
}

TEST(OnnxOpset, unknown_operators_are_not_trusted) {
  GraphBuilder b;
  b.input("x", {2, 4}).output("y");
  b.node("SomethingNew", {"x"}, "y");
  const Understood it(b);
  EXPECT_NO_THROW(check_target(it.graph, Target::kOnnxPlain));
  EXPECT_THROW(check_target(it.graph, Target::kOnnxRms23), Refusal);
  EXPECT_EQ(chosen_target(Target::kAuto, 22), Target::kOnnxPlain);
  EXPECT_EQ(chosen_target(Target::kAuto, 23), Target::kOnnxRms23);
  EXPECT_THROW(chosen_target(Target::kHf, 23), tools::ToolError);
}

TEST(OnnxRecognise, parameters_with_more_axes_than_the_tensor_would_show) {
  for (const bool deep : {false, true}) {
    GraphBuilder b;
    b.output("y").output("z").constant("w", {1, 1, 4}, {1, 2, 3, 4});
    if (deep) {
      b.input("x", {2, 3, 4});
    } else {
      b.input("x", {2, 4});
    }
    b.node("LayerNormalization", {"x", "w"}, "y");
    b.written_out("x", "n");
    b.node("Mul", {"n", "w"}, "z");
    const Understood it(b);
    ASSERT_EQ(it.norms.all.size(), 2u);
    EXPECT_EQ(it.norms.all[0].fault.empty(), deep);
    EXPECT_EQ(it.norms.all[1].weight, deep ? "w" : "");
  }
}

TEST(OnnxRecognise, an_epsilon_with_more_axes_than_the_tensor_makes_it_none) {
  GraphBuilder b;
  b.input("x", {2, 4}).output("n");
  b.written_out("x", "n");
  EXPECT_EQ(Understood(b).norms.all.at(0).fault, "");
  for (auto& tensor : *b.model.mutable_graph()->mutable_initializer()) {
    if (tensor.name() == "n_epsilon") tensor.mutable_dims()->Resize(3, 1);
  }
  EXPECT_NE(Understood(b).norms.all.at(0).fault, "");
}

TEST(OnnxRecognise, epsilon_and_stash_type) {
  for (const float epsilon : {-1e-5f, std::nanf(""), HUGE_VALF}) {
    GraphBuilder b;
    b.input("x", {2, 4}).output("y").constant("w", {4}, {1, 2, 3, 4});
    pb::AttributeProto& attribute = *b.node("LayerNormalization", {"x", "w"}, "y").add_attribute();
    attribute.set_name("epsilon");
    attribute.set_f(epsilon);
    EXPECT_NE(Understood(b).norms.all.at(0).fault, "") << epsilon;
  }
  GraphBuilder b;
  b.input("x", {2, 4}).output("y").constant("w", {4}, {1, 2, 3, 4});
  pb::AttributeProto& attribute = *b.node("LayerNormalization", {"x", "w"}, "y").add_attribute();
  attribute.set_name("stash_type");
  attribute.set_i(pb::TensorProto::FLOAT16);
  EXPECT_NE(Understood(b).norms.all.at(0).fault, "");
}

}  // namespace
}  // namespace rmsnorm::convert::onnx
