// rmsnorm: normalisation kernels for the CPU. The C++ interface, all of it: a header over rmsnorm.h.
//
// Formulas, shapes, types, aliasing and rounding are those of rmsnorm.h; read that first. Here every operation has two
// forms: `op(...)` throws rmsnorm::Error, `try_op(...)` returns a Status and never throws. Arguments stand in the order
// outputs, inputs, parameters, options, execution; a default-constructed View is an absent operand.
//
//   std::vector<float> x = ..., w = ..., out(x.size());
//   rmsnorm::rms_norm(rmsnorm::matrix(out.data(), rows, cols), {}, rmsnorm::matrix(x.data(), rows, cols),
//                     rmsnorm::vector(w.data(), cols), {}, {.epsilon = 1e-5});
#ifndef RMSNORM_RMSNORM_HPP_
#define RMSNORM_RMSNORM_HPP_

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "rmsnorm/rmsnorm.h"

namespace rmsnorm {

// ---- Types ----------------------------------------------------------------------------------------------------------

// A 16-bit IEEE number, as bits: storage, not arithmetic.
struct f16 {
  std::uint16_t bits;
};
// The upper half of an f32, as bits.
struct bf16 {
  std::uint16_t bits;
};

// The rn_type of a C++ type. _Float16, __bf16 and the like have no entry: hand their address to View as f16 or bf16.
template <class T>
inline constexpr rn_type type_of = [] {
  using U = std::remove_cv_t<T>;
  static_assert(
      std::is_same_v<U, float> || std::is_same_v<U, double> || std::is_same_v<U, f16> || std::is_same_v<U, bf16>,
      "rmsnorm: elements are float, double, rmsnorm::f16 or rmsnorm::bf16");
  if constexpr (std::is_same_v<U, double>) return RN_F64;
  if constexpr (std::is_same_v<U, f16>) return RN_F16;
  if constexpr (std::is_same_v<U, bf16>) return RN_BF16;
  return RN_F32;
}();

// ---- Status ---------------------------------------------------------------------------------------------------------

// What a call returned, with its message.
struct [[nodiscard]] Status {
  rn_status code = RN_OK;
  std::string message;

  bool ok() const noexcept { return code == RN_OK; }
};

// Thrown by the forms without try_. what() is the library's message.
class Error : public std::invalid_argument {
 public:
  Error(rn_status code, const char* message) : std::invalid_argument(message), code_(code) {}
  rn_status code() const noexcept { return code_; }

 private:
  rn_status code_;
};

// ---- Views ----------------------------------------------------------------------------------------------------------

// A tensor that somebody else owns (rn_view). Default-constructed: absent.
class View {
 public:
  View() = default;
  explicit View(const rn_view& view) : view_(view), present_(true) {}

  // shape and strides in elements; without strides: dense, row-major.
  template <class T>
  View(T* data, std::initializer_list<std::int64_t> shape)
      : View(rn_tensor(address(data), type_of<T>, static_cast<std::int32_t>(shape.size()), shape.begin())) {}
  template <class T>
  View(T* data, std::initializer_list<std::int64_t> shape, std::initializer_list<std::int64_t> strides)
      : View(data, shape) {
    if (strides.size() != shape.size()) {
      view_.rank = -1;  // every operation refuses it with a message
      return;
    }
    int axis = 0;
    for (const std::int64_t stride : strides) {
      if (axis < RN_MAX_RANK) view_.strides[axis++] = stride;
    }
  }

  const rn_view* get() const noexcept { return present_ ? &view_ : nullptr; }

 private:
  template <class T>
  static void* address(T* data) noexcept {
    return const_cast<void*>(static_cast<const void*>(data));  // inputs are never written to
  }

  rn_view view_{};
  bool present_ = false;
};

// A dense [rows, cols] matrix; a dense [cols] vector.
template <class T>
View matrix(T* data, std::int64_t rows, std::int64_t cols) {
  return View(data, {rows, cols});
}
template <class T>
View vector(T* data, std::int64_t cols) {
  return View(data, {cols});
}

// ---- Options --------------------------------------------------------------------------------------------------------

enum class EpsilonPlacement { kInside = RN_EPSILON_INSIDE, kOutside = RN_EPSILON_OUTSIDE };
enum class Rounding { kOnce = RN_ROUND_ONCE, kBeforeWeight = RN_ROUND_BEFORE_WEIGHT, kExact = RN_ROUND_EXACT };
enum class NormInput { kRoundedSum = RN_NORM_ROUNDED_SUM, kUnroundedSum = RN_NORM_UNROUNDED_SUM };

struct RmsNormOptions {
  double epsilon = rn_rms_norm_defaults().epsilon;
  double weight_offset = 0;
  EpsilonPlacement epsilon_placement = EpsilonPlacement::kInside;
  Rounding rounding = Rounding::kOnce;
  std::int64_t partial = 0;  // columns in the mean square; 0: all
};

struct LayerNormOptions {
  double epsilon = rn_layer_norm_defaults().epsilon;
  double weight_offset = 0;
};

struct AddRmsNormOptions : RmsNormOptions {
  NormInput norm_input = NormInput::kRoundedSum;
};

struct AddLayerNormOptions : LayerNormOptions {
  NormInput norm_input = NormInput::kRoundedSum;
};

// Where the work runs; see rn_execution.
struct Execution {
  int threads = 0;                         // 0: all CPUs; 1: the calling thread
  rn_parallel_for parallel_for = nullptr;  // null: the built-in pool
  void* parallel_context = nullptr;
};

// ---- Operations -----------------------------------------------------------------------------------------------------

namespace detail {

inline Status status(rn_status code) { return {code, code == RN_OK ? std::string() : std::string(rn_last_error())}; }

inline void require(rn_status code) {
  if (code != RN_OK) throw Error(code, rn_last_error());
}

inline rn_rms_norm_options c_options(const RmsNormOptions& o) noexcept {
  return {o.epsilon, o.weight_offset, static_cast<rn_epsilon_placement>(o.epsilon_placement),
          static_cast<rn_rounding>(o.rounding), o.partial};
}
inline rn_layer_norm_options c_options(const LayerNormOptions& o) noexcept { return {o.epsilon, o.weight_offset}; }
inline rn_add_rms_norm_options c_options(const AddRmsNormOptions& o) noexcept {
  return {c_options(static_cast<const RmsNormOptions&>(o)), static_cast<rn_norm_input>(o.norm_input)};
}
inline rn_add_layer_norm_options c_options(const AddLayerNormOptions& o) noexcept {
  return {c_options(static_cast<const LayerNormOptions&>(o)), static_cast<rn_norm_input>(o.norm_input)};
}
inline rn_execution c_execution(const Execution& e) noexcept { return {e.threads, e.parallel_for, e.parallel_context}; }

inline rn_status rms_norm(const View& out, const View& inv_rms, const View& x, const View& weight, const View& bias,
                          const RmsNormOptions& options, const Execution& execution) noexcept {
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_rms_norm(out.get(), inv_rms.get(), x.get(), weight.get(), bias.get(), &o, &e);
}

inline rn_status layer_norm(const View& out, const View& mean, const View& inv_std, const View& x, const View& weight,
                            const View& bias, const LayerNormOptions& options, const Execution& execution) noexcept {
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_layer_norm(out.get(), mean.get(), inv_std.get(), x.get(), weight.get(), bias.get(), &o, &e);
}

inline rn_status add_rms_norm(const View& out, const View& residual_out, const View& inv_rms, const View& x,
                              const View& residual, const View& weight, const View& bias,
                              const AddRmsNormOptions& options, const Execution& execution) noexcept {
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_add_rms_norm(out.get(), residual_out.get(), inv_rms.get(), x.get(), residual.get(), weight.get(),
                         bias.get(), &o, &e);
}

inline rn_status add_layer_norm(const View& out, const View& residual_out, const View& mean, const View& inv_std,
                                const View& x, const View& residual, const View& weight, const View& bias,
                                const AddLayerNormOptions& options, const Execution& execution) noexcept {
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_add_layer_norm(out.get(), residual_out.get(), mean.get(), inv_std.get(), x.get(), residual.get(),
                           weight.get(), bias.get(), &o, &e);
}

inline rn_status center(const View& out, const View& x, const Execution& execution) noexcept {
  const auto e = c_execution(execution);
  return rn_center(out.get(), x.get(), &e);
}

}  // namespace detail

// inv = 1 / sqrt(mean(x^2) + epsilon), out = x * inv * (weight + weight_offset) + bias. See rn_rms_norm.
inline void rms_norm(const View& out, const View& inv_rms, const View& x, const View& weight = {},
                     const View& bias = {}, const RmsNormOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::rms_norm(out, inv_rms, x, weight, bias, options, execution));
}
inline Status try_rms_norm(const View& out, const View& inv_rms, const View& x, const View& weight = {},
                           const View& bias = {}, const RmsNormOptions& options = {}, const Execution& execution = {}) {
  return detail::status(detail::rms_norm(out, inv_rms, x, weight, bias, options, execution));
}

// m = mean(x), v = mean((x-m)^2), out = (x - m) / sqrt(v + epsilon) * (weight + weight_offset) + bias.
// See rn_layer_norm.
inline void layer_norm(const View& out, const View& mean, const View& inv_std, const View& x, const View& weight = {},
                       const View& bias = {}, const LayerNormOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::layer_norm(out, mean, inv_std, x, weight, bias, options, execution));
}
inline Status try_layer_norm(const View& out, const View& mean, const View& inv_std, const View& x,
                             const View& weight = {}, const View& bias = {}, const LayerNormOptions& options = {},
                             const Execution& execution = {}) {
  return detail::status(detail::layer_norm(out, mean, inv_std, x, weight, bias, options, execution));
}

// s = x + residual, residual_out = round(s), out = rms_norm(residual_out or s). See rn_add_rms_norm.
inline void add_rms_norm(const View& out, const View& residual_out, const View& inv_rms, const View& x,
                         const View& residual, const View& weight = {}, const View& bias = {},
                         const AddRmsNormOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::add_rms_norm(out, residual_out, inv_rms, x, residual, weight, bias, options, execution));
}
inline Status try_add_rms_norm(const View& out, const View& residual_out, const View& inv_rms, const View& x,
                               const View& residual, const View& weight = {}, const View& bias = {},
                               const AddRmsNormOptions& options = {}, const Execution& execution = {}) {
  return detail::status(
      detail::add_rms_norm(out, residual_out, inv_rms, x, residual, weight, bias, options, execution));
}

// s = x + residual, residual_out = round(s), out = layer_norm(residual_out or s). See rn_add_layer_norm.
inline void add_layer_norm(const View& out, const View& residual_out, const View& mean, const View& inv_std,
                           const View& x, const View& residual, const View& weight = {}, const View& bias = {},
                           const AddLayerNormOptions& options = {}, const Execution& execution = {}) {
  detail::require(
      detail::add_layer_norm(out, residual_out, mean, inv_std, x, residual, weight, bias, options, execution));
}
inline Status try_add_layer_norm(const View& out, const View& residual_out, const View& mean, const View& inv_std,
                                 const View& x, const View& residual, const View& weight = {}, const View& bias = {},
                                 const AddLayerNormOptions& options = {}, const Execution& execution = {}) {
  return detail::status(
      detail::add_layer_norm(out, residual_out, mean, inv_std, x, residual, weight, bias, options, execution));
}

// out = x - mean(x). See rn_center.
inline void center(const View& out, const View& x, const Execution& execution = {}) {
  detail::require(detail::center(out, x, execution));
}
inline Status try_center(const View& out, const View& x, const Execution& execution = {}) {
  return detail::status(detail::center(out, x, execution));
}

}  // namespace rmsnorm

#endif  // RMSNORM_RMSNORM_HPP_
