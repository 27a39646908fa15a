// Between PyTorch's tensors and the library's views.
#ifndef RMSNORM_TORCH_TENSORS_H_
#define RMSNORM_TORCH_TENSORS_H_

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdint>
#include <optional>
#include <string>

#include "rmsnorm/rmsnorm.hpp"

namespace rmsnorm_torch {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

inline bool present(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

inline rn_type element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return RN_F32;
    case at::kHalf:
      return RN_F16;
    case at::kBFloat16:
      return RN_BF16;
    case at::kDouble:
      return RN_F64;
    case at::kChar:
      return RN_I8;
    case at::kFloat8_e4m3fn:
      return RN_F8E4M3;
    case at::kFloat8_e5m2:
      return RN_F8E5M2;
    case at::kInt:
      return RN_I32;
    case at::kLong:
      return RN_I64;
    default:
      TORCH_CHECK_TYPE(false, "rmsnorm: the type of a tensor is ", type,
                       "; it must be a floating type, or int32 or int64 for positions");
  }
}

// The kernels want a dense last axis; a tensor without one, such as an expanded gradient or a transposed matrix, is
// copied, as PyTorch's own norms do.
inline Tensor rows(const Tensor& tensor) {
  const int64_t rank = tensor.dim();
  return rank == 0 || tensor.size(-1) <= 1 || tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}
inline OptionalTensor rows(const OptionalTensor& tensor) {
  return present(tensor) ? OptionalTensor(rows(*tensor)) : std::nullopt;
}

inline rmsnorm::View view(const Tensor& tensor) {
  rn_view v;
  v.data = const_cast<void*>(tensor.const_data_ptr());  // inputs are never written to
  v.type = element_type(tensor.scalar_type());
  v.rank = static_cast<int32_t>(tensor.dim());
  for (int axis = 0; axis < v.rank && axis < RN_MAX_RANK; ++axis) {
    v.shape[axis] = tensor.size(axis);
    v.strides[axis] = tensor.stride(axis);
  }
  return rmsnorm::View(v);
}
inline rmsnorm::View view(const OptionalTensor& tensor) { return present(tensor) ? view(*tensor) : rmsnorm::View(); }

// Dense outputs. They know sizes as symbols, so kernels and their fakes make the same ones.
inline Tensor dense_like(const Tensor& x, std::optional<at::ScalarType> type = std::nullopt) {
  return at::empty_symint(x.sym_sizes(), x.options().dtype(type.value_or(x.scalar_type())));
}
inline Tensor dense(const Tensor& x, c10::SymIntArrayRef sizes, at::ScalarType type) {
  return at::empty_symint(sizes, x.options().dtype(type));
}

// A gradient that is not wanted.
inline Tensor nothing(const Tensor& x) { return at::empty({0}, x.options()); }

// PyTorch's own threads, as many as it was told to use.
inline void parallel_for(void*, int64_t count, rn_task task, void* data) {
  at::parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) task(data, i);
  });
}
inline rmsnorm::Execution execution() { return {at::get_num_threads(), parallel_for, nullptr}; }

// Runs a call of the library; its messages become ValueError and TypeError.
template <class Operation>
void run(Operation&& operation) {
  try {
    operation();
  } catch (const rmsnorm::Error& error) {
    TORCH_CHECK_VALUE(error.code() != RN_INVALID_VALUE, error.what());
    TORCH_CHECK_TYPE(error.code() != RN_INVALID_TYPE, error.what());
    TORCH_CHECK(false, error.what());
  }
}

// The value that a string stands for.
template <class E, size_t N>
E choice(const char* function, const char* argument, const std::string& text, const char* const (&names)[N]) {
  std::string rule;
  for (size_t i = 0; i < N; ++i) {
    if (text == names[i]) return static_cast<E>(i);
    rule += std::string(i == 0 ? "'" : i + 1 == N ? "' or '" : "', '") + names[i];
  }
  TORCH_CHECK_VALUE(false, function, ": ", argument, " is '", text, "'; it must be ", rule, "'");
}

inline rmsnorm::EpsilonPlacement epsilon_placement(const char* function, const std::string& text) {
  return choice<rmsnorm::EpsilonPlacement>(function, "epsilon_placement", text, {"inside", "outside"});
}
inline rmsnorm::Rounding rounding(const char* function, const std::string& text) {
  return choice<rmsnorm::Rounding>(function, "rounding", text, {"once", "before_weight", "exact"});
}
inline rmsnorm::NormInput norm_input(const char* function, const std::string& text) {
  return choice<rmsnorm::NormInput>(function, "norm_input", text, {"rounded_sum", "unrounded_sum"});
}
inline rmsnorm::GateOrder gate_order(const char* function, const std::string& text) {
  return choice<rmsnorm::GateOrder>(function, "gate_order", text, {"last", "first"});
}

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_TENSORS_H_
