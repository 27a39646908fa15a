// Gated RMSNorm and its backward.
#ifndef RMSNORM_GATED_RMS_NORM_HPP_
#define RMSNORM_GATED_RMS_NORM_HPP_

#include "rmsnorm/backward.hpp"
#include "rmsnorm/gated_rms_norm.h"

namespace rmsnorm {

enum class GateOrder {
  kLast = RN_GATE_LAST,    // rms_norm(x) * silu(gate): Qwen3-Next
  kFirst = RN_GATE_FIRST,  // rms_norm(x * silu(gate)): Mamba 2
};

struct GatedRmsNormOptions {
  double epsilon = 1e-6;
  GateOrder gate_order = GateOrder::kLast;
  Rounding rounding = Rounding::kOnce;  // or kBeforeWeight
  std::int64_t groups = 1;
};

struct GatedRmsNormBackwardOptions : GatedRmsNormOptions {
  bool accumulate = false;  // dweight is added to
};

namespace detail {

inline rn_gated_rms_norm_options c_options(const GatedRmsNormOptions& o) noexcept {
  return {o.epsilon, static_cast<rn_gate_order>(o.gate_order), static_cast<rn_rounding>(o.rounding), o.groups};
}

inline rn_status gated_rms_norm(const View& out, const View& inv_rms, const View& x, const View& gate,
                                const View& weight, const GatedRmsNormOptions& options,
                                const Execution& execution) noexcept {
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_gated_rms_norm(out.get(), inv_rms.get(), x.get(), gate.get(), weight.get(), &o, &e);
}

inline rn_status gated_rms_norm_backward(const View& dx, const View& dgate, const View& dweight, const View& dy,
                                         const View& x, const View& gate, const View& weight, const View& inv_rms,
                                         const GatedRmsNormBackwardOptions& options, const Execution& execution) {
  const rn_scratch memory = dweight.get() == nullptr ? rn_scratch{} : backward_scratch(x);
  const rn_gated_rms_norm_backward_options o = {c_options(static_cast<const GatedRmsNormOptions&>(options)),
                                                options.accumulate ? 1 : 0};
  const auto e = c_execution(execution);
  return rn_gated_rms_norm_backward(dx.get(), dgate.get(), dweight.get(), dy.get(), x.get(), gate.get(), weight.get(),
                                    inv_rms.get(), &memory, &o, &e);
}

}  // namespace detail

// out = rms_norm(x) silu(gate), or rms_norm(x silu(gate)) in groups. See rn_gated_rms_norm.
inline void gated_rms_norm(const View& out, const View& inv_rms, const View& x, const View& gate,
                           const View& weight = {}, const GatedRmsNormOptions& options = {},
                           const Execution& execution = {}) {
  detail::require(detail::gated_rms_norm(out, inv_rms, x, gate, weight, options, execution));
}
inline Status try_gated_rms_norm(const View& out, const View& inv_rms, const View& x, const View& gate,
                                 const View& weight = {}, const GatedRmsNormOptions& options = {},
                                 const Execution& execution = {}) {
  return detail::status(detail::gated_rms_norm(out, inv_rms, x, gate, weight, options, execution));
}

// Gradients of x, gate and weight. See rn_gated_rms_norm_backward. May allocate scratch, which the try_ form reports as
// std::bad_alloc, too.
inline void gated_rms_norm_backward(const View& dx, const View& dgate, const View& dweight, const View& dy,
                                    const View& x, const View& gate, const View& weight = {}, const View& inv_rms = {},
                                    const GatedRmsNormBackwardOptions& options = {}, const Execution& execution = {}) {
  detail::require(
      detail::gated_rms_norm_backward(dx, dgate, dweight, dy, x, gate, weight, inv_rms, options, execution));
}
inline Status try_gated_rms_norm_backward(const View& dx, const View& dgate, const View& dweight, const View& dy,
                                          const View& x, const View& gate, const View& weight = {},
                                          const View& inv_rms = {}, const GatedRmsNormBackwardOptions& options = {},
                                          const Execution& execution = {}) {
  return detail::status(
      detail::gated_rms_norm_backward(dx, dgate, dweight, dy, x, gate, weight, inv_rms, options, execution));
}

}  // namespace rmsnorm

#endif  // RMSNORM_GATED_RMS_NORM_HPP_
