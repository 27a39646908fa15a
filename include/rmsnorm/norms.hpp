// The forward norms of whole rows: RMSNorm, LayerNorm, their residual-add forms, centring.
#ifndef RMSNORM_NORMS_HPP_
#define RMSNORM_NORMS_HPP_

#include "rmsnorm/core.hpp"
#include "rmsnorm/norms.h"

namespace rmsnorm {

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

// ---- Operations -----------------------------------------------------------------------------------------------------

namespace detail {

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

#endif  // RMSNORM_NORMS_HPP_
