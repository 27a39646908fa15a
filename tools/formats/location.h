// Where a tensor is: "FILE.npy" or "FILE.safetensors:TENSOR".
#ifndef RMSNORM_TOOLS_FORMATS_LOCATION_H_
#define RMSNORM_TOOLS_FORMATS_LOCATION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/formats/tensor.h"

namespace rmsnorm::tools {

struct Location {
  std::string file;
  std::string tensor;  // empty for .npy

  bool is_npy() const { return tensor.empty(); }
};

// Throws for a name that is neither; a .safetensors file without a tensor gets the list of its tensors in the message.
Location parse_location(std::string_view text);

// Reads the tensor; raw_type and raw_used as for read_npy.
Tensor read_tensor(const Location& location, std::optional<rn_type> raw_type = std::nullopt, bool* raw_used = nullptr);

// True if both names lead to the same existing file.
bool same_file(const Location& a, const Location& b);

// The tensors that one command writes. All files are complete on disk before the first takes its name.
class OutputSet {
 public:
  // `tensor` must live until commit().
  void add(Location location, const Tensor& tensor);
  void commit();

 private:
  struct Output {
    Location location;
    const Tensor* tensor;
  };
  std::vector<Output> outputs_;
};

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_FORMATS_LOCATION_H_
