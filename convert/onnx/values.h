// The numbers of a tensor: wherever the file keeps them, as f64 in memory, and stored again with one rounding.
#ifndef RMSNORM_CONVERT_ONNX_VALUES_H_
#define RMSNORM_CONVERT_ONNX_VALUES_H_

#include <optional>
#include <string>
#include <vector>

#include "convert/onnx/model.h"

namespace rmsnorm::convert::onnx {

// f32, f16, bf16 and f64: what a norm can work on.
bool is_float(int type);
// f16 and bf16: what is summed in f32.
bool is_narrow(int type);
// "f32", "i64", "type 17"
std::string type_name(int type);
// Bytes of one element; 0 for text, packed and unknown types.
std::size_t type_size(int type);

// Where external data lies, checked: inside the folder, inside the file.
struct ExternalData {
  std::string file;  // with the folder
  std::string location;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};
bool is_external(const pb::TensorProto& tensor);
ExternalData external_data(const pb::TensorProto& tensor, const std::string& folder);

// R14 unless shape and data agree; needs no more than the sizes of external files.
void check_tensor(const pb::TensorProto& tensor, const std::string& folder);

// The bytes as in the file, little-endian; the tensor must have a type with a size.
std::string tensor_bytes(const pb::TensorProto& tensor, const std::string& folder);

// Integers and floats; nothing for other types.
std::optional<Array> read_array(const pb::TensorProto& tensor, const std::string& folder);

// Replaces type, shape and data; keeps name and text. R10 for a number that the type cannot hold.
void store_array(pb::TensorProto& tensor, const Array& array);

double round_to_type(int type, double value);

// Half the distance from 1 to the next number: the relative error of one rounding.
double unit_roundoff(int type);

// Subtracts from each line along the axis its mean. `carry`: each rounding error goes to the line's next element.
void centre(Array& array, std::size_t axis, bool carry);

// Elements before, along and behind an axis.
struct Lines {
  std::size_t outer = 1, length = 1, inner = 1;
};
Lines lines_along(const Shape& dims, std::size_t axis);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_VALUES_H_
