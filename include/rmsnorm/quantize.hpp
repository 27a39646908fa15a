// RMSNorm with a quantised output, alone and behind a residual add.
#ifndef RMSNORM_QUANTIZE_HPP_
#define RMSNORM_QUANTIZE_HPP_

#include "rmsnorm/norms.hpp"
#include "rmsnorm/quantize.h"

namespace rmsnorm {

enum class Scaling { kStatic = RN_SCALE_STATIC, kPerRow = RN_SCALE_PER_ROW, kPerGroup = RN_SCALE_PER_GROUP };

struct Quantization {
  Scaling scaling = Scaling::kPerRow;
  float static_scale = 1;
  bool power_of_two = false;
};

struct RmsNormQuantizeOptions : RmsNormOptions {
  Quantization quantization;
};

struct AddRmsNormQuantizeOptions : AddRmsNormOptions {
  Quantization quantization;
};

namespace detail {

inline rn_quantization c_options(const Quantization& q) noexcept {
  return {static_cast<rn_scaling>(q.scaling), q.static_scale, q.power_of_two ? 1 : 0};
}

inline rn_status rms_norm_quantize(const View& out, const View& scale, const View& x, const View& weight,
                                   const View& bias, const RmsNormQuantizeOptions& options,
                                   const Execution& execution) noexcept {
  const rn_rms_norm_quantize_options o = {c_options(static_cast<const RmsNormOptions&>(options)),
                                          c_options(options.quantization)};
  const auto e = c_execution(execution);
  return rn_rms_norm_quantize(out.get(), scale.get(), x.get(), weight.get(), bias.get(), &o, &e);
}

inline rn_status add_rms_norm_quantize(const View& out, const View& residual_out, const View& scale, const View& x,
                                       const View& residual, const View& weight, const View& bias,
                                       const AddRmsNormQuantizeOptions& options, const Execution& execution) noexcept {
  const rn_add_rms_norm_quantize_options o = {c_options(static_cast<const AddRmsNormOptions&>(options)),
                                              c_options(options.quantization)};
  const auto e = c_execution(execution);
  return rn_add_rms_norm_quantize(out.get(), residual_out.get(), scale.get(), x.get(), residual.get(), weight.get(),
                                  bias.get(), &o, &e);
}

}  // namespace detail

// y = rms_norm(x), out = saturate(round(y / scale)), scale from the largest |y|. See rn_rms_norm_quantize.
inline void rms_norm_quantize(const View& out, const View& scale, const View& x, const View& weight = {},
                              const View& bias = {}, const RmsNormQuantizeOptions& options = {},
                              const Execution& execution = {}) {
  detail::require(detail::rms_norm_quantize(out, scale, x, weight, bias, options, execution));
}
inline Status try_rms_norm_quantize(const View& out, const View& scale, const View& x, const View& weight = {},
                                    const View& bias = {}, const RmsNormQuantizeOptions& options = {},
                                    const Execution& execution = {}) {
  return detail::status(detail::rms_norm_quantize(out, scale, x, weight, bias, options, execution));
}

// s = x + residual, residual_out = round(s), out and scale from rms_norm(residual_out or s). See
// rn_add_rms_norm_quantize.
inline void add_rms_norm_quantize(const View& out, const View& residual_out, const View& scale, const View& x,
                                  const View& residual, const View& weight = {}, const View& bias = {},
                                  const AddRmsNormQuantizeOptions& options = {}, const Execution& execution = {}) {
  detail::require(
      detail::add_rms_norm_quantize(out, residual_out, scale, x, residual, weight, bias, options, execution));
}
inline Status try_add_rms_norm_quantize(const View& out, const View& residual_out, const View& scale, const View& x,
                                        const View& residual, const View& weight = {}, const View& bias = {},
                                        const AddRmsNormQuantizeOptions& options = {},
                                        const Execution& execution = {}) {
  return detail::status(
      detail::add_rms_norm_quantize(out, residual_out, scale, x, residual, weight, bias, options, execution));
}

}  // namespace rmsnorm

#endif  // RMSNORM_QUANTIZE_HPP_
