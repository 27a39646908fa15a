// Backward of RMSNorm, LayerNorm and their residual-add forms. Scratch is the calling thread's own; it grows to the
// most that any call has needed.
#ifndef RMSNORM_BACKWARD_HPP_
#define RMSNORM_BACKWARD_HPP_

#include "rmsnorm/backward.h"
#include "rmsnorm/norms.hpp"

namespace rmsnorm {

struct RmsNormBackwardOptions : RmsNormOptions {
  bool accumulate = false;  // dweight and dbias are added to
};

struct LayerNormBackwardOptions : LayerNormOptions {
  bool accumulate = false;
};

namespace detail {

inline rn_rms_norm_backward_options c_options(const RmsNormBackwardOptions& o) noexcept {
  return {c_options(static_cast<const RmsNormOptions&>(o)), o.accumulate ? 1 : 0};
}
inline rn_layer_norm_backward_options c_options(const LayerNormBackwardOptions& o) noexcept {
  return {c_options(static_cast<const LayerNormOptions&>(o)), o.accumulate ? 1 : 0};
}

// Sizes that no call accepts get no scratch; the call says what is wrong with them.
inline rn_scratch backward_scratch(const View& x) { return scratch(rn_backward_scratch_bytes(x.rows(), x.cols())); }

inline rn_status rms_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                   const View& x, const View& weight, const View& inv_rms,
                                   const RmsNormBackwardOptions& options, const Execution& execution) {
  const rn_scratch memory = backward_scratch(x);
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_rms_norm_backward(dx.get(), dweight.get(), dbias.get(), dy.get(), x.get(), weight.get(), inv_rms.get(),
                              &memory, &o, &e);
}

inline rn_status layer_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                     const View& x, const View& weight, const View& inv_std,
                                     const LayerNormBackwardOptions& options, const Execution& execution) {
  const rn_scratch memory = backward_scratch(x);
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_layer_norm_backward(dx.get(), dweight.get(), dbias.get(), dy.get(), x.get(), weight.get(), inv_std.get(),
                                &memory, &o, &e);
}

inline rn_status add_rms_norm_backward(const View& dx, const View& dresidual, const View& dweight, const View& dbias,
                                       const View& dy, const View& d_residual_out, const View& sum, const View& weight,
                                       const View& inv_rms, const RmsNormBackwardOptions& options,
                                       const Execution& execution) {
  const rn_scratch memory = backward_scratch(sum);
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_add_rms_norm_backward(dx.get(), dresidual.get(), dweight.get(), dbias.get(), dy.get(), d_residual_out.get(),
                                  sum.get(), weight.get(), inv_rms.get(), &memory, &o, &e);
}

inline rn_status add_layer_norm_backward(const View& dx, const View& dresidual, const View& dweight, const View& dbias,
                                         const View& dy, const View& d_residual_out, const View& sum,
                                         const View& weight, const View& inv_std,
                                         const LayerNormBackwardOptions& options, const Execution& execution) {
  const rn_scratch memory = backward_scratch(sum);
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_add_layer_norm_backward(dx.get(), dresidual.get(), dweight.get(), dbias.get(), dy.get(),
                                    d_residual_out.get(), sum.get(), weight.get(), inv_std.get(), &memory, &o, &e);
}

}  // namespace detail

// dx = inv (g - xhat mean(g xhat)), dweight = sum dy xhat, dbias = sum dy. See rn_rms_norm_backward. May allocate
// scratch, which the try_ form reports as std::bad_alloc, too.
inline void rms_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy, const View& x,
                              const View& weight = {}, const View& inv_rms = {},
                              const RmsNormBackwardOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::rms_norm_backward(dx, dweight, dbias, dy, x, weight, inv_rms, options, execution));
}
inline Status try_rms_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                    const View& x, const View& weight = {}, const View& inv_rms = {},
                                    const RmsNormBackwardOptions& options = {}, const Execution& execution = {}) {
  return detail::status(detail::rms_norm_backward(dx, dweight, dbias, dy, x, weight, inv_rms, options, execution));
}

// dx = inv_std (g - mean(g) - h mean(g h)), dweight = sum dy h, dbias = sum dy. See rn_layer_norm_backward.
inline void layer_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy, const View& x,
                                const View& weight = {}, const View& inv_std = {},
                                const LayerNormBackwardOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::layer_norm_backward(dx, dweight, dbias, dy, x, weight, inv_std, options, execution));
}
inline Status try_layer_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                      const View& x, const View& weight = {}, const View& inv_std = {},
                                      const LayerNormBackwardOptions& options = {}, const Execution& execution = {}) {
  return detail::status(detail::layer_norm_backward(dx, dweight, dbias, dy, x, weight, inv_std, options, execution));
}

// dx = dresidual = d_residual_out + rms_norm_backward(dy). See rn_add_rms_norm_backward.
inline void add_rms_norm_backward(const View& dx, const View& dresidual, const View& dweight, const View& dbias,
                                  const View& dy, const View& d_residual_out, const View& sum, const View& weight = {},
                                  const View& inv_rms = {}, const RmsNormBackwardOptions& options = {},
                                  const Execution& execution = {}) {
  detail::require(detail::add_rms_norm_backward(dx, dresidual, dweight, dbias, dy, d_residual_out, sum, weight, inv_rms,
                                                options, execution));
}
inline Status try_add_rms_norm_backward(const View& dx, const View& dresidual, const View& dweight, const View& dbias,
                                        const View& dy, const View& d_residual_out, const View& sum,
                                        const View& weight = {}, const View& inv_rms = {},
                                        const RmsNormBackwardOptions& options = {}, const Execution& execution = {}) {
  return detail::status(detail::add_rms_norm_backward(dx, dresidual, dweight, dbias, dy, d_residual_out, sum, weight,
                                                      inv_rms, options, execution));
}

// dx = dresidual = d_residual_out + layer_norm_backward(dy). See rn_add_layer_norm_backward.
inline void add_layer_norm_backward(const View& dx, const View& dresidual, const View& dweight, const View& dbias,
                                    const View& dy, const View& d_residual_out, const View& sum,
                                    const View& weight = {}, const View& inv_std = {},
                                    const LayerNormBackwardOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::add_layer_norm_backward(dx, dresidual, dweight, dbias, dy, d_residual_out, sum, weight,
                                                  inv_std, options, execution));
}
inline Status try_add_layer_norm_backward(const View& dx, const View& dresidual, const View& dweight, const View& dbias,
                                          const View& dy, const View& d_residual_out, const View& sum,
                                          const View& weight = {}, const View& inv_std = {},
                                          const LayerNormBackwardOptions& options = {},
                                          const Execution& execution = {}) {
  return detail::status(detail::add_layer_norm_backward(dx, dresidual, dweight, dbias, dy, d_residual_out, sum, weight,
                                                        inv_std, options, execution));
}

}  // namespace rmsnorm

#endif  // RMSNORM_BACKWARD_HPP_
