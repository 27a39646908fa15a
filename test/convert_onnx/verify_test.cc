// What the proof must not believe: each change below makes another function, or a graph that no runtime loads.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "convert/names.h"
#include "convert/onnx/opset.h"
#include "convert/onnx/rewrite.h"
#include "convert/onnx/stream.h"
#include "convert/onnx/verify.h"
#include "graphs.h"

namespace rmsnorm::convert::onnx {
namespace {

constexpr Target kTargets[] = {Target::kOnnxPlain, Target::kOnnxRms23, Target::kOnnxSimplified};

pb::ModelProto converted(const pb::ModelProto& original, Target target) {
  Model model = parsed(original);
  const Graph graph(model);
  const Shapes shapes(graph);
  const Norms norms = recognise_norms(graph, shapes);
  const Plan plan = make_plan(graph, shapes, norms, {});
  EXPECT_EQ(plan.converted, static_cast<int>(norms.all.size()));
  rewrite(model, graph, shapes, norms, plan, target, false);
  return model.proto;
}

// The first fault, or "equal".
std::string proof(const pb::ModelProto& original, const pb::ModelProto& changed) {
  Model before = parsed(original), after = parsed(changed);
  const Proof proof = prove_equal(before, after, 2);
  return proof.faults.empty() ? "equal" : proof.faults[0].site + ": " + proof.faults[0].what;
}

// As many rows as columns, so that a weight along the wrong axis fits; the second norm's input needs an operation.
pb::ModelProto two_norms(std::int64_t opset = 17) {
  GraphBuilder b(opset);
  b.input("i", {4}, pb::TensorProto::INT64).input("fed", {4, 4}).output("y");
  b.constant("table", {3, 4}, {1, 2, 3, 4, 5, 7, 9, 9, 1, 0, 0, 1});
  b.constant("w", {4}, {1, 2, 3, 4}).constant("b", {4}, {4, 3, 2, 1}).constant("v", {4}, {2, 2, 3, 3});
  b.node("Gather", {"table", "i"}, "x");
  b.node("LayerNormalization", {"x", "w", "b"}, "n");
  b.node("Relu", {"n"}, "r");
  b.node("MatMul", {"fed", "r"}, "m");
  b.node("Add", {"x", "m"}, "s");
  b.node("LayerNormalization", {"s", "v"}, "y");
  return b.model;
}

pb::TensorProto* constant(pb::ModelProto& model, const std::string& name) {
  for (auto& tensor : *model.mutable_graph()->mutable_initializer()) {
    if (tensor.name() == name) return &tensor;
  }
  return nullptr;
}

pb::NodeProto* node(pb::ModelProto& model, const std::string& op) {
  for (auto& node : *model.mutable_graph()->mutable_node()) {
    if (node.op_type() == op) return &node;
  }
  return nullptr;
}

pb::AttributeProto* attribute(pb::NodeProto& node, const std::string& name) {
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

void reshape(pb::TensorProto& tensor, std::initializer_list<std::int64_t> dims) {
  tensor.mutable_dims()->Assign(dims.begin(), dims.end());
}

void to_type(pb::TensorProto& tensor, int type) {
  Array array = *read_array(tensor, "/nonexistent");
  array.type = type;
  store_array(tensor, array);
}

TEST(OnnxVerify, a_graph_equals_itself_and_not_another) {
  GraphBuilder b;
  b.input("x", {2, 4}).output("y");
  b.node("Relu", {"x"}, "y");
  const pb::ModelProto original = b.model;
  EXPECT_EQ(proof(original, original), "equal");
  b.model.mutable_graph()->mutable_node(0)->set_op_type("Sigmoid");
  EXPECT_NE(proof(original, b.model), "equal");
}

TEST(OnnxVerify, converted_graphs_are_equal) {
  for (const std::int64_t opset : {17, 18, 22, 23, 24}) {
    for (const Target target : kTargets) {
      EXPECT_EQ(proof(two_norms(opset), converted(two_norms(opset), target)), "equal")
          << opset << name_of(convert::kTargets, target);
    }
  }
}

TEST(OnnxVerify, parameters_broadcast_and_have_types) {
  const pb::ModelProto original = two_norms();
  for (const Target target : kTargets) {
    for (const char* name : {"w", "b", "v", "table"}) {
      pb::ModelProto changed = converted(original, target);
      pb::TensorProto* tensor = constant(changed, name);
      ASSERT_NE(tensor, nullptr);
      const pb::TensorProto right = *tensor;
      for (const int type : {pb::TensorProto::DOUBLE, pb::TensorProto::FLOAT16}) {
        to_type(*tensor, type);
        EXPECT_NE(proof(original, changed), "equal") << name << name_of(convert::kTargets, target);
        *tensor = right;
      }
      if (tensor->dims_size() != 1) continue;
      reshape(*tensor, {4, 1});
      EXPECT_NE(proof(original, changed), "equal") << name << name_of(convert::kTargets, target);
      reshape(*tensor, {1, 1, 4});
      EXPECT_NE(proof(original, changed), "equal") << name << name_of(convert::kTargets, target);
      // Under another name, too.
      reshape(*tensor, {4, 1});
      for (auto& reader : *changed.mutable_graph()->mutable_node()) {
        for (auto& input : *reader.mutable_input()) {
          if (input == name) input = "renamed";
        }
      }
      tensor->set_name("renamed");
      EXPECT_NE(proof(original, changed), "equal") << name << name_of(convert::kTargets, target);
      to_type(*tensor, pb::TensorProto::DOUBLE);
      reshape(*tensor, {4});
      EXPECT_NE(proof(original, changed), "equal") << name << name_of(convert::kTargets, target);
      to_type(*tensor, pb::TensorProto::FLOAT);
      EXPECT_EQ(proof(original, changed), "equal") << name << name_of(convert::kTargets, target);
    }
  }
}

TEST(OnnxVerify, constants_of_a_written_out_norm_have_its_type_and_no_more_axes) {
  const pb::ModelProto original = two_norms();
  for (const char* name : {"rmsnorm_two", "rmsnorm_epsilon"}) {
    pb::ModelProto changed = converted(original, Target::kOnnxPlain);
    pb::TensorProto* tensor = constant(changed, name);
    ASSERT_NE(tensor, nullptr);
    reshape(*tensor, {1, 1});
    EXPECT_EQ(proof(original, changed), "equal");
    reshape(*tensor, {1, 1, 1});
    EXPECT_NE(proof(original, changed), "equal") << name;
    reshape(*tensor, {});
    to_type(*tensor, pb::TensorProto::DOUBLE);
    EXPECT_NE(proof(original, changed), "equal") << name;
  }
}

// 2^-24 is two roundings of -0.5, and less than one of the largest in its line.
TEST(OnnxVerify, one_rounding_of_the_element_itself) {
  const pb::ModelProto original = two_norms();
  pb::ModelProto changed = converted(original, Target::kOnnxPlain);
  EXPECT_EQ(proof(original, changed), "equal");
  pb::TensorProto& table = *constant(changed, "table");
  Array array = *read_array(table, "/nonexistent");
  ASSERT_EQ(array.values[1], -0.5);
  array.values[1] += 0x1p-24;
  store_array(table, array);
  EXPECT_NE(proof(original, changed), "equal");
}

// What the file says of its rounding must be what its numbers show: f16 of these thirds is rounded in each place.
TEST(OnnxVerify, carried_rounding_is_followed) {
  pb::ModelProto original = two_norms();
  for (auto& tensor : *original.mutable_graph()->mutable_initializer()) {
    Array array = *read_array(tensor, "/nonexistent");
    array.type = pb::TensorProto::FLOAT16;
    for (double& value : array.values) value = round_to_type(array.type, value / 3);
    store_array(tensor, array);
  }
  original.mutable_graph()->mutable_input(1)->mutable_type()->mutable_tensor_type()->set_elem_type(
      pb::TensorProto::FLOAT16);
  const auto say = [](pb::ModelProto& model) {
    auto& rounding = *model.add_metadata_props();
    rounding.set_key(kRounding);
    rounding.set_value(kCarried);
  };
  pb::ModelProto plain = converted(original, Target::kOnnxPlain), carried = plain;
  Array table = *read_array(*constant(original, "table"), "/nonexistent");
  centre(table, 1, true);
  store_array(*constant(carried, "table"), table);
  EXPECT_EQ(proof(original, plain), "equal");
  EXPECT_NE(proof(original, carried), "equal");
  say(plain);
  say(carried);
  EXPECT_NE(proof(original, plain), "equal");
  EXPECT_EQ(proof(original, carried), "equal");
  for (std::size_t i = 0; i < table.values.size(); ++i) {  // by one unit, each, and its neighbour keeps what it took on
    Array wrong = table;
    wrong.values[i] += std::exp2(std::ilogb(wrong.values[i])) * 0x1p-10;
    pb::ModelProto changed = carried;
    store_array(*constant(changed, "table"), wrong);
    EXPECT_NE(proof(original, changed), "equal") << i;
  }
}

// A norm that stays (its scale is no constant) and a layer whose columns sum to 0 read a sum into which a stream goes
// that is converted.
pb::ModelProto norm_that_stays(const char* reader = "LayerNormalization", float last_weight = -1) {
  GraphBuilder b;
  b.input("i", {4}, pb::TensorProto::INT64).input("fed", {4, 4}).input("other", {4, 4}).input("scale", {4});
  b.output("n").output("m").output("y").output("z");
  b.constant("table", {3, 4}, {1, 2, 3, 4, 5, 7, 9, 9, 1, 0, 0, 1}).constant("half", {}, {0.5f});
  b.constant("w", {4}, {1, 2, 3, 4}).constant("b", {4}, {4, 3, 2, 1}).constant("v", {4}, {2, 2, 3, 3});
  b.constant("zero_sum", {4, 2}, {1, 2, -1, 2, 1, -3, last_weight, -1});
  b.node("Gather", {"table", "i"}, "x");
  b.node("LayerNormalization", {"x", "w", "b"}, "n");
  b.node("LayerNormalization", {"x", "v"}, "m");
  b.node("Add", {"x", "fed"}, "sum");
  b.node("Mul", {"sum", "half"}, "scaled");
  b.node("Sub", {"other", "scaled"}, "s");
  if (std::string(reader) == "LayerNormalization") {
    b.node(reader, {"s", "scale"}, "y");
  } else {
    b.node(reader, {"s"}, "y");
  }
  b.node("MatMul", {"s", "zero_sum"}, "z");
  return b.model;
}

pb::ModelProto partly_converted(const pb::ModelProto& original, Target target, int norms) {
  Model model = parsed(original);
  const Graph graph(model);
  const Shapes shapes(graph);
  const Norms found = recognise_norms(graph, shapes);
  const Plan plan = make_plan(graph, shapes, found, {});
  EXPECT_EQ(plan.converted, norms);
  rewrite(model, graph, shapes, found, plan, target, false);
  return model.proto;
}

TEST(OnnxVerify, norms_that_stay_ignore_what_is_added_to_a_line) {
  const pb::ModelProto original = norm_that_stays();
  for (const Target target : kTargets) {
    const pb::ModelProto changed = partly_converted(original, target, 2);
    EXPECT_EQ(proof(original, changed), "equal") << name_of(convert::kTargets, target);
    // The same changes, where a reader minds: it sees a sum of which a part is centred.
    const auto with = [&](const pb::ModelProto& other) {
      pb::ModelProto wrong = changed;
      for (const char* name : {"y", "z"}) {
        for (int n = 0; n < wrong.graph().node_size(); ++n) {
          if (wrong.graph().node(n).output(0) != name) continue;
          for (const auto& node : other.graph().node()) {
            if (node.output(0) == name) *wrong.mutable_graph()->mutable_node(n) = node;
          }
        }
      }
      pb::ModelProto weight = other;
      *constant(wrong, "zero_sum") = *constant(weight, "zero_sum");
      return proof(other, wrong);
    };
    EXPECT_EQ(with(original), "equal");
    for (const char* minds : {"Relu", "Sigmoid", "Identity", "Softmax"}) {
      EXPECT_NE(with(norm_that_stays(minds)), "equal") << minds;
    }
    EXPECT_NE(with(norm_that_stays("LayerNormalization", -2)), "equal");
  }
}

TEST(OnnxVerify, a_part_of_a_sum_must_be_the_originals_centred) {
  const pb::ModelProto original = norm_that_stays();
  const pb::ModelProto right = partly_converted(original, Target::kOnnxPlain, 2);
  const auto wrong = [&](const std::function<void(pb::ModelProto&)>& change) {
    pb::ModelProto changed = right;
    change(changed);
    return proof(original, changed);
  };
  EXPECT_EQ(wrong([](auto&) {}), "equal");
  EXPECT_NE(wrong([](auto& m) {  // one element of the table
              Array table = *read_array(*constant(m, "table"), "/nonexistent");
              table.values[6] += 1;
              store_array(*constant(m, "table"), table);
            }),
            "equal");
  EXPECT_NE(wrong([](auto& m) {  // centred along the wrong axis
              Array table{pb::TensorProto::FLOAT, {3, 4}, {1, 2, 3, 4, 5, 7, 9, 9, 1, 0, 0, 1}};
              centre(table, 0, false);
              store_array(*constant(m, "table"), table);
            }),
            "equal");
  for (const char* name : {"sum", "scaled", "s", "y", "z"}) {  // another tensor in the place of each input
    for (int slot = 0; slot < 2; ++slot) {
      EXPECT_NE(wrong([&](auto& m) {
                  for (auto& node : *m.mutable_graph()->mutable_node()) {
                    if (node.output(0) == name) node.set_input(slot, slot == 0 ? "n" : "m");
                  }
                }),
                "equal")
          << name << slot;
    }
  }
}

// The norm reads a sum with a part that is not centred as an RMSNorm: the operation before it is left out.
TEST(OnnxVerify, an_rms_norm_minds_what_is_added_to_a_line) {
  GraphBuilder b;
  b.model = two_norms();
  b.model.mutable_graph()->mutable_node(5)->set_output(0, "z");
  b.node("Add", {"x", "fed"}, "sum");
  b.node("LayerNormalization", {"sum", "v"}, "y");
  b.output("z");
  const pb::ModelProto original = b.model;
  for (const Target target : kTargets) {
    pb::ModelProto changed = converted(original, target);
    EXPECT_EQ(proof(original, changed), "equal") << name_of(convert::kTargets, target);
    bool found = false;
    for (auto& node : *changed.mutable_graph()->mutable_node()) {
      for (auto& input : *node.mutable_input()) {
        if (node.output(0) != "sum" || input == "x") continue;
        EXPECT_EQ(input, "fed_centred");
        input = "fed";
        found = true;
      }
    }
    EXPECT_TRUE(found);
    EXPECT_NE(proof(original, changed), "equal") << name_of(convert::kTargets, target);
  }
}

// The norm ignores a mean along its own axis, and no other.
TEST(OnnxVerify, means_along_another_axis) {
  const auto graph = [](std::int64_t axis) {
    GraphBuilder b;
    b.input("fed", {4, 4}).input("scale", {4}).output("y");
    pb::AttributeProto& axes = *b.node("ReduceMean", {"fed"}, "mean").add_attribute();
    axes.set_name("axes");
    axes.set_type(pb::AttributeProto::INTS);
    axes.add_ints(axis);
    b.node("Sub", {"fed", "mean"}, "d");
    b.node("LayerNormalization", {"d", "scale"}, "y");
    return b.model;
  };
  EXPECT_EQ(proof(graph(0), graph(0)), "equal");
  EXPECT_EQ(proof(graph(1), graph(-1)), "equal");
  EXPECT_NE(proof(graph(0), graph(1)), "equal");
  EXPECT_NE(proof(graph(1), graph(0)), "equal");
}

TEST(OnnxVerify, attributes_of_new_nodes) {
  const pb::ModelProto original = two_norms();
  using Change = std::function<void(pb::NodeProto&)>;
  const auto refused = [&](Target target, const char* op, const Change& change) {
    pb::ModelProto changed = converted(original, target);
    pb::NodeProto* found = node(changed, op);
    if (found == nullptr) return false;
    change(*found);
    return proof(original, changed) != "equal";
  };
  for (const auto& [target, op] : {std::pair(Target::kOnnxRms23, "RMSNormalization"),
                                   std::pair(Target::kOnnxSimplified, "SimplifiedLayerNormalization")}) {
    for (const float epsilon : {1e-3f, -1e-5f, 0.0f, std::nanf("")}) {
      EXPECT_TRUE(refused(target, op, [&](auto& n) { attribute(n, "epsilon")->set_f(epsilon); })) << epsilon;
    }
    EXPECT_TRUE(refused(target, op, [](auto& n) { attribute(n, "axis")->set_i(0); }));
    EXPECT_TRUE(refused(target, op, [](auto& n) { attribute(n, "stash_type")->set_i(pb::TensorProto::FLOAT16); }));
    EXPECT_TRUE(refused(target, op, [](auto& n) { attribute(n, "epsilon")->set_type(pb::AttributeProto::INT); }));
    EXPECT_TRUE(refused(target, op, [](auto& n) { *n.add_attribute() = *attribute(n, "epsilon"); }));
    EXPECT_TRUE(refused(target, op, [](auto& n) { attribute(n, "stash_type")->set_name("other"); }));
    EXPECT_TRUE(refused(target, op, [](auto& n) { n.add_input("b"); }));
    EXPECT_TRUE(refused(target, op, [](auto& n) { n.add_output("more"); }));
    EXPECT_TRUE(refused(target, op, [](auto& n) { n.set_domain("com.microsoft"); }));
  }
  const Target plain = Target::kOnnxPlain;
  for (const int keep : {0, 2, -1}) {
    EXPECT_TRUE(refused(plain, "ReduceMean", [&](auto& n) { attribute(n, "keepdims")->set_i(keep); })) << keep;
  }
  EXPECT_TRUE(refused(plain, "ReduceMean", [](auto& n) { attribute(n, "axes")->set_ints(0, 0); }));
  EXPECT_TRUE(refused(plain, "ReduceMean", [](auto& n) { attribute(n, "axes")->add_ints(0); }));
  EXPECT_TRUE(refused(plain, "Sqrt", [](auto& n) { n.add_attribute()->set_name("other"); }));
}

TEST(OnnxVerify, operator_sets_hold_their_nodes) {
  for (const Target target : kTargets) {
    for (const std::int64_t opset : {17, 18, 23}) {
      const pb::ModelProto original = two_norms(opset);
      for (const std::int64_t other : {16, 17, 18, 22, 23, 24}) {
        pb::ModelProto changed = converted(original, target);
        auto& import = *changed.mutable_opset_import(0);
        const bool raised = target == Target::kOnnxRms23 && opset < kRmsOpset;
        EXPECT_EQ(import.version(), raised ? kRmsOpset : opset);
        if (other == import.version()) continue;
        import.set_version(other);
        EXPECT_NE(proof(original, changed), "equal") << name_of(convert::kTargets, target) << opset << " as " << other;
      }
      pb::ModelProto changed = converted(original, target);
      changed.set_ir_version(changed.ir_version() + 1);
      EXPECT_NE(proof(original, changed), "equal") << name_of(convert::kTargets, target) << opset;
    }
  }
}

// The operation that is inserted has its axes as the operator set asks that is written, not the one that was read.
TEST(OnnxVerify, raised_graphs_are_written_in_their_operator_set) {
  pb::ModelProto changed = converted(two_norms(17), Target::kOnnxRms23);
  const pb::NodeProto* mean = node(changed, "ReduceMean");
  ASSERT_NE(mean, nullptr);
  EXPECT_EQ(mean->input_size(), 2);
  EXPECT_EQ(mean->attribute_size(), 1);
}

// An initialiser that is an input may be replaced by a caller: it is no constant, and its default must stay.
TEST(OnnxVerify, defaults_of_inputs) {
  GraphBuilder b;
  b.model = two_norms();
  b.input("fed_too", {4}).constant("fed_too", {4}, {1, 2, 3, 5});
  b.model.mutable_graph()->mutable_node(4)->set_input(1, "fed_too");
  const pb::ModelProto original = b.model;
  EXPECT_EQ(proof(original, original), "equal");
  for (const Target target : kTargets) {
    pb::ModelProto changed = converted(original, target);
    EXPECT_EQ(proof(original, changed), "equal");
    store_array(*constant(changed, "fed_too"), {pb::TensorProto::FLOAT, {4}, {1, 2, 3, 4}});
    EXPECT_NE(proof(original, changed), "equal");
    changed = converted(original, target);
    constant(changed, "fed_too")->set_name("elsewhere");
    EXPECT_NE(proof(original, changed), "equal");
  }
}

TEST(OnnxVerify, constants_without_numbers_equal_themselves) {
  GraphBuilder b;
  b.input("x", {2, 4}).output("y").output("t");
  pb::AttributeProto& text = *b.node("Constant", {}, "c").add_attribute();
  text.set_name("value_string");
  text.set_s("text");
  b.node("Relu", {"x"}, "y");
  b.node("StringNormalizer", {"c"}, "t");
  EXPECT_EQ(proof(b.model, b.model), "equal");
}

}  // namespace
}  // namespace rmsnorm::convert::onnx
