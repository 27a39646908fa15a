#include "graphs.h"

namespace rmsnorm::convert::onnx {

Model parsed(const std::string& bytes) {
  return parse_model(tools::MemorySource("test.onnx", std::as_bytes(std::span(bytes))), "/nonexistent");
}

Model parsed(const pb::ModelProto& model) { return parsed(model.SerializeAsString()); }

std::string refusal_of(const std::string& bytes) {
  try {
    parsed(bytes);
  } catch (const Refusal& refusal) {
    return refusal_name(refusal.refusal());
  } catch (const tools::ToolError& error) {
    return "exit " + std::to_string(static_cast<int>(error.code()));
  }
  return "none";
}

std::string refusal_of(const pb::ModelProto& model) { return refusal_of(model.SerializeAsString()); }

GraphBuilder::GraphBuilder(std::int64_t opset) {
  model.set_ir_version(8);
  model.add_opset_import()->set_version(opset);
  model.mutable_graph()->set_name("graph");
}

GraphBuilder& GraphBuilder::input(const std::string& name, std::initializer_list<std::int64_t> shape, int type) {
  pb::ValueInfoProto& info = *model.mutable_graph()->add_input();
  info.set_name(name);
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(type);
  for (const std::int64_t length : shape) {
    auto& dim = *tensor.mutable_shape()->add_dim();
    if (length >= 0) dim.set_dim_value(length);
  }
  return *this;
}

GraphBuilder& GraphBuilder::output(const std::string& name) {
  model.mutable_graph()->add_output()->set_name(name);
  return *this;
}

GraphBuilder& GraphBuilder::constant(const std::string& name, std::vector<std::int64_t> shape,
                                     std::vector<float> values) {
  pb::TensorProto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(pb::TensorProto::FLOAT);
  tensor.mutable_dims()->Assign(shape.begin(), shape.end());
  tensor.mutable_float_data()->Assign(values.begin(), values.end());
  return *this;
}

GraphBuilder& GraphBuilder::whole(const std::string& name, std::vector<std::int64_t> values) {
  pb::TensorProto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(pb::TensorProto::INT64);
  tensor.add_dims(static_cast<std::int64_t>(values.size()));
  tensor.mutable_int64_data()->Assign(values.begin(), values.end());
  return *this;
}

pb::NodeProto& GraphBuilder::node(const char* op, std::initializer_list<std::string> inputs,
                                  const std::string& output) {
  pb::NodeProto& node = *model.mutable_graph()->add_node();
  node.set_op_type(op);
  node.set_name(output);
  for (const auto& name : inputs) node.add_input(name);
  node.add_output(output);
  return node;
}

GraphBuilder& GraphBuilder::written_out(const std::string& x, const std::string& output, std::int64_t axis) {
  const auto mean = [&](const std::string& of, const std::string& name) {
    pb::AttributeProto& axes = *node("ReduceMean", {of}, name).add_attribute();
    axes.set_name("axes");
    axes.add_ints(axis);
  };
  constant(output + "_two", {}, {2}).constant(output + "_epsilon", {}, {1e-5f});
  mean(x, output + "_mean");
  node("Sub", {x, output + "_mean"}, output + "_deviation");
  node("Pow", {output + "_deviation", output + "_two"}, output + "_square");
  mean(output + "_square", output + "_variance");
  node("Add", {output + "_variance", output + "_epsilon"}, output + "_sum");
  node("Sqrt", {output + "_sum"}, output + "_root");
  node("Div", {output + "_deviation", output + "_root"}, output);
  return *this;
}

}  // namespace rmsnorm::convert::onnx
