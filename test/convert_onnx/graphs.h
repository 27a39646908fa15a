// Small ONNX graphs in memory.
#ifndef RMSNORM_TEST_CONVERT_ONNX_GRAPHS_H_
#define RMSNORM_TEST_CONVERT_ONNX_GRAPHS_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "convert/onnx/model.h"
#include "convert/refusal.h"

namespace rmsnorm::convert::onnx {

// Parses the bytes as a file would be; the folder holds no external data.
Model parsed(const std::string& bytes);
Model parsed(const pb::ModelProto& model);

// The code of the refusal, or the exit code's number behind "exit " for another error, or "none".
std::string refusal_of(const std::string& bytes);
std::string refusal_of(const pb::ModelProto& model);

class GraphBuilder {
 public:
  explicit GraphBuilder(std::int64_t opset = 17);

  GraphBuilder& input(const std::string& name, std::initializer_list<std::int64_t> shape, int type = 1);
  GraphBuilder& output(const std::string& name);
  GraphBuilder& constant(const std::string& name, std::vector<std::int64_t> shape, std::vector<float> values);
  GraphBuilder& whole(const std::string& name, std::vector<std::int64_t> values);
  // Appends a node that gives `output`.
  pb::NodeProto& node(const char* op, std::initializer_list<std::string> inputs, const std::string& output);
  // output = LayerNorm(x), written out over the axis; names inside start with `output`.
  GraphBuilder& written_out(const std::string& x, const std::string& output, std::int64_t axis = -1);

  pb::ModelProto model;
};

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_TEST_CONVERT_ONNX_GRAPHS_H_
