// Files that lie: each is refused with R14, none reads outside its bytes, all end in time and within the stack.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <chrono>

#include "convert/onnx/expand.h"
#include "convert/onnx/recognise.h"
#include "convert/onnx/rewrite.h"
#include "convert/onnx/values.h"
#include "graphs.h"

namespace rmsnorm::convert::onnx {
namespace {

GraphBuilder identity() {
  GraphBuilder b;
  b.input("x", {2, 4}).output("y");
  b.node("Identity", {"x"}, "y");
  return b;
}

TEST(HostileOnnx, no_model_at_all) {
  EXPECT_EQ(refusal_of(std::string()), "R14");
  EXPECT_EQ(refusal_of(std::string("PK\x03\x04")), "R14");
  EXPECT_EQ(refusal_of(std::string(1000, '\xff')), "R14");
  EXPECT_EQ(refusal_of(identity().model), "none");
}

TEST(HostileOnnx, every_truncation_is_refused_or_whole) {
  GraphBuilder b = identity();
  b.constant("c", {2, 2}, {1, 2, 3, 4});
  const std::string bytes = b.model.SerializeAsString();
  int refused = 0;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string found = refusal_of(bytes.substr(0, size));
    EXPECT_TRUE(found == "R14" || found == "none") << size << ": " << found;
    refused += found == "R14" ? 1 : 0;
  }
  EXPECT_GT(refused, static_cast<int>(bytes.size()) * 9 / 10);
}

TEST(HostileOnnx, shape_and_data_disagree) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{5},
                                                 {-4},
                                                 {2, -2},
                                                 {std::int64_t{1} << 62, 4},
                                                 {INT64_MAX, INT64_MAX},
                                                 {0, INT64_MAX, INT64_MAX},
                                                 std::vector<std::int64_t>(65, 1)}) {
    EXPECT_EQ(refusal_of(identity().constant("c", shape, {1, 2, 3, 4}).model), "R14");
  }
  GraphBuilder b = identity();
  pb::TensorProto& tensor = *b.constant("c", {4}, {}).model.mutable_graph()->mutable_initializer(0);
  tensor.set_raw_data(std::string(15, 'x'));
  EXPECT_EQ(refusal_of(b.model), "R14");
  tensor.set_raw_data(std::string(16, 'x'));
  EXPECT_EQ(refusal_of(b.model), "none");
}

TEST(HostileOnnx, graphs_that_are_none) {
  GraphBuilder cycle = identity();
  cycle.node("Add", {"a", "x"}, "b");
  cycle.node("Add", {"b", "x"}, "a");
  EXPECT_EQ(refusal_of(cycle.model), "R14");
  GraphBuilder twice = identity();
  twice.node("Identity", {"x"}, "y");
  EXPECT_EQ(refusal_of(twice.model), "R14");
  EXPECT_EQ(refusal_of(identity().output("nowhere").model), "R14");
  GraphBuilder dangling = identity();
  dangling.node("Relu", {"nowhere"}, "z");
  EXPECT_EQ(refusal_of(dangling.model), "R14");
  EXPECT_EQ(refusal_of(identity().constant("c", {1}, {1}).constant("c", {1}, {1}).model), "R14");
  GraphBuilder unsorted;
  unsorted.input("x", {4}).output("z");
  unsorted.node("Identity", {"y"}, "z");
  unsorted.node("Relu", {"x"}, "y");
  EXPECT_EQ(parsed(unsorted.model).proto.graph().node(0).op_type(), "Relu");
}

// Graphs inside nodes inside graphs: protobuf's own limit ends it before the stack does.
TEST(HostileOnnx, nesting) {
  pb::GraphProto graph;
  graph.add_node()->set_op_type("Identity");
  for (int i = 0; i < 2000; ++i) {
    pb::GraphProto outer;
    pb::NodeProto& node = *outer.add_node();
    node.set_op_type("If");
    pb::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("then_branch");
    *attribute.mutable_g() = std::move(graph);
    graph = std::move(outer);
  }
  GraphBuilder b = identity();
  b.node("If", {}, "z").add_attribute()->mutable_g()->Swap(&graph);
  EXPECT_EQ(refusal_of(b.model), "R14");
}

TEST(HostileOnnx, external_data_outside_the_folder) {
  for (const char* location : {"../x", "/etc/passwd", "a/../../x", "", "..", "a/.."}) {
    GraphBuilder b = identity();
    pb::TensorProto& tensor = *b.constant("c", {4}, {}).model.mutable_graph()->mutable_initializer(0);
    tensor.set_data_location(pb::TensorProto::EXTERNAL);
    auto& entry = *tensor.add_external_data();
    entry.set_key("location");
    entry.set_value(location);
    EXPECT_EQ(refusal_of(b.model), "R14") << location;
  }
  GraphBuilder b = identity();
  pb::TensorProto& tensor = *b.constant("c", {4}, {}).model.mutable_graph()->mutable_initializer(0);
  tensor.set_data_location(pb::TensorProto::EXTERNAL);
  auto& entry = *tensor.add_external_data();
  entry.set_key("location");
  entry.set_value("weights.bin");
  EXPECT_EQ(refusal_of(b.model), "exit 4");  // there is no such file
  for (const char* number : {"-1", "x", "99999999999999999999", "1 "}) {
    auto& offset = *tensor.add_external_data();
    offset.set_key("offset");
    offset.set_value(number);
    EXPECT_EQ(refusal_of(b.model), "R14") << number;
    tensor.mutable_external_data()->RemoveLast();
  }
}

TEST(HostileOnnx, versions) {
  GraphBuilder b = identity();
  for (const std::int64_t version :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{kNewestIrVersion + 1}, INT64_MAX}) {
    b.model.set_ir_version(version);
    EXPECT_EQ(refusal_of(b.model), "R14") << version;
  }
  b.model.set_ir_version(kNewestIrVersion);
  EXPECT_EQ(refusal_of(b.model), "none");
  auto& again = *b.model.add_opset_import();
  again.set_version(23);
  for (const char* domain : {"", "ai.onnx"}) {
    again.set_domain(domain);
    EXPECT_EQ(refusal_of(b.model), "R14") << domain;
  }
  again.set_domain("com.microsoft");
  EXPECT_EQ(refusal_of(b.model), "none");
}

TEST(HostileOnnx, operator_sets) {
  {
    GraphBuilder b(kNewestOpset);
    b.input("x", {4}).output("y");
    b.node("Identity", {"x"}, "y");
    Model model = parsed(b.model);
    EXPECT_NO_THROW(Graph{model});
  }
  for (const std::int64_t opset : {std::int64_t{0}, std::int64_t{-5}, std::int64_t{kNewestOpset + 1}, INT64_MAX}) {
    GraphBuilder b(opset);
    b.input("x", {4}).output("y");
    b.node("Identity", {"x"}, "y");
    Model model = parsed(b.model);
    EXPECT_THROW(Graph{model}, Refusal) << opset;
  }
}

// Long chains, and chains whose every link reads the one before twice, end in time and within the stack.
TEST(HostileOnnx, long_and_doubling_chains) {
  GraphBuilder b;
  constexpr int kLinks = 20000;
  b.input("x", {2, 4}).output("y").whole("r0", {2, 4}).constant("w", {4}, {1, 2, 3, 4});
  for (int i = 0; i < kLinks; ++i) {
    const std::string a = "r" + std::to_string(i), c = "r" + std::to_string(i + 1);
    const std::string d = i == 0 ? "x" : "a" + std::to_string(i);
    b.node("Reshape", {a, a}, c);
    b.node("Add", {d, d}, "a" + std::to_string(i + 1));
  }
  b.node("LayerNormalization", {"a" + std::to_string(kLinks), "w"}, "y");
  Model model = parsed(b.model);
  const Graph graph(model);
  const Shapes shapes(graph);
  const Norms norms = recognise_norms(graph, shapes);
  ASSERT_EQ(norms.all.size(), 1u);
  const Plan plan = make_plan(graph, shapes, norms, {});
  EXPECT_EQ(plan.converted, 0);
  EXPECT_EQ(refusal_name(plan.verdicts[0].code), std::string("R13"));
}

// What many nodes read through a chain of casts is not followed to its end each time.
TEST(HostileOnnx, casts_without_end) {
  GraphBuilder b;
  b.input("x", {2, 4}).output("y");
  const auto cast = [&](const std::string& from, const std::string& to) {
    pb::AttributeProto& type = *b.node("Cast", {from}, to).add_attribute();
    type.set_name("to");
    type.set_i(pb::TensorProto::FLOAT);
  };
  constexpr int kCasts = 60000, kReaders = 3000;
  for (int i = 0; i < kCasts; ++i) cast(i == 0 ? "x" : "c" + std::to_string(i), "c" + std::to_string(i + 1));
  const std::string last = "c" + std::to_string(kCasts);
  for (int i = 0; i < kReaders; ++i) b.node("Mul", {last, last}, i == 0 ? "y" : "m" + std::to_string(i));
  Model model = parsed(b.model);
  EXPECT_TRUE(expand_norms(model).empty());
  const Graph graph(model);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(recognise_norms(graph, Shapes(graph)).all.empty());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // it was a minute
}

// The file says how long a norm without a weight is; no weight of that length is made.
TEST(HostileOnnx, a_width_beyond_the_memory) {
  for (const Target target : {Target::kOnnxPlain, Target::kOnnxSimplified}) {
    GraphBuilder b;
    b.input("x", {2, std::int64_t{1} << 40}).output("y");
    b.written_out("x", "n0").node("Add", {"x", "n0"}, "x1");
    b.written_out("x1", "n1").node("Add", {"x1", "n1"}, "x2");
    b.written_out("x2", "y");
    Model model = parsed(b.model);
    expand_norms(model);
    const Graph graph(model);
    const Shapes shapes(graph);
    const Norms norms = recognise_norms(graph, shapes);
    const Plan plan = make_plan(graph, shapes, norms, {});
    ASSERT_EQ(plan.converted, 3);
    const Changes changes = rewrite(model, graph, shapes, norms, plan, target, false);
    EXPECT_EQ(changes.plain.size(), target == Target::kOnnxPlain ? 0u : 3u);
  }
}

TEST(HostileOnnx, attributes_out_of_range) {
  for (const std::int64_t axis : {INT64_MIN, INT64_MAX, std::int64_t{-100}, std::int64_t{7}}) {
    GraphBuilder b;
    b.input("x", {2, 3, 4}).output("y").constant("w", {4}, {1, 2, 3, 4});
    const auto add = [&](const char* op, const char* name, const std::string& in, const std::string& out) {
      pb::AttributeProto& attribute = *b.node(op, {in}, out).add_attribute();
      attribute.set_name(name);
      attribute.set_i(axis);
      attribute.add_ints(axis);
    };
    b.written_out("x", "n0", axis);
    add("Transpose", "perm", "x", "t");
    add("Squeeze", "axes", "t", "s");
    add("Unsqueeze", "axes", "s", "u");
    add("Flatten", "axis", "u", "f");
    add("Softmax", "axis", "f", "so");
    add("Split", "axis", "x", "sp");
    add("Concat", "axis", "sp", "c");
    add("Pad", "pads", "c", "p");
    add("Slice", "axes", "p", "sl");
    add("Shape", "start", "x", "sh");
    pb::AttributeProto& attribute = *b.node("LayerNormalization", {"sl", "w"}, "y").add_attribute();
    attribute.set_name("axis");
    attribute.set_i(axis);
    Model model = parsed(b.model);
    const Graph graph(model);
    const Shapes shapes(graph);
    const Norms norms = recognise_norms(graph, shapes);
    EXPECT_EQ(make_plan(graph, shapes, norms, {}).converted, 0);
  }
}

}  // namespace
}  // namespace rmsnorm::convert::onnx
