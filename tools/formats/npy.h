// NumPy's .npy files, format versions 1, 2 and 3: one dense array of little-endian floats.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#ifndef RMSNORM_TOOLS_FORMATS_NPY_H_
#define RMSNORM_TOOLS_FORMATS_NPY_H_

#include <optional>
#include <string>
#include <string_view>

#include "tools/formats/source.h"
#include "tools/formats/tensor.h"

namespace rmsnorm::tools {

// Longer headers are refused; NumPy itself refuses 10,000 bytes unless told otherwise.
inline constexpr std::uint64_t kMaxNpyHeaderBytes = 65535;

struct NpyHeader {
  std::string descr;  // as in the file, for instance "<f4"
  bool fortran_order = false;
  Shape shape;
  std::uint64_t data_start = 0;
};

// Reads and checks everything but the element type.
NpyHeader read_npy_header(const Source& source);

// Reads the array, in C order whatever the order in the file. `raw_type` says what elements of the type `V2` are (NumPy
// has no bf16 and writes it so); *raw_used becomes true if it was needed.
Tensor read_npy(const Source& source, std::optional<rn_type> raw_type = std::nullopt, bool* raw_used = nullptr);

// The bytes before the data of a version 1 file. bf16 is declared as `V2`.
std::string npy_header(rn_type type, const Shape& shape);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_FORMATS_NPY_H_
