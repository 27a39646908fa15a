// Numbers of a tensor as f64, with the type and the shape that they have in the file.
#ifndef RMSNORM_CONVERT_ONNX_ARRAY_H_
#define RMSNORM_CONVERT_ONNX_ARRAY_H_

#include <vector>

#include "onnx.pb.h"
#include "tools/formats/tensor.h"

namespace rmsnorm::convert::onnx {

namespace pb = rmsnorm::onnx_proto;
using tools::Shape;

struct Array {
  int type = pb::TensorProto::FLOAT;
  Shape dims;
  std::vector<double> values;
};

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_ARRAY_H_
