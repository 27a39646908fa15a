// Norms of images, [N, C, pixels..] (NCHW). See channels.h.
#ifndef RMSNORM_CHANNELS_HPP_
#define RMSNORM_CHANNELS_HPP_

#include "rmsnorm/backward.hpp"
#include "rmsnorm/channels.h"
#include "rmsnorm/norms.hpp"

namespace rmsnorm {

namespace detail {

// Sizes that no call accepts get no scratch; the call says what is wrong with them.
inline rn_scratch channels_scratch(const View& x) {
  const rn_view* v = x.get();
  if (v == nullptr || v->rank < 3 || v->rank > RN_MAX_RANK) return {nullptr, 0};
  std::int64_t pixels = 1;
  for (int axis = 2; axis < v->rank; ++axis) pixels *= v->shape[axis];
  return scratch(rn_rms_norm_channels_scratch_bytes(v->shape[0], v->shape[1], pixels));
}
inline rn_scratch groups_scratch(const View& x) {
  const rn_view* v = x.get();
  if (v == nullptr || v->rank < 3 || v->rank > RN_MAX_RANK) return {nullptr, 0};
  return scratch(rn_group_rms_norm_scratch_bytes(v->shape[0], v->shape[1]));
}

inline rn_status rms_norm_channels(const View& out, const View& x, const View& weight, const View& bias,
                                   const RmsNormOptions& options, const Execution& execution) {
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_rms_norm_channels(out.get(), x.get(), weight.get(), bias.get(), &o, &e);
}

inline rn_status group_rms_norm(const View& out, const View& x, std::int64_t groups, const View& weight,
                                const View& bias, const RmsNormOptions& options, const Execution& execution) {
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_group_rms_norm(out.get(), x.get(), groups, weight.get(), bias.get(), &o, &e);
}

inline rn_status rms_norm_channels_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                            const View& x, const View& weight, const RmsNormBackwardOptions& options,
                                            const Execution& execution) {
  const rn_scratch memory = channels_scratch(x);
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_rms_norm_channels_backward(dx.get(), dweight.get(), dbias.get(), dy.get(), x.get(), weight.get(), &memory,
                                       &o, &e);
}

inline rn_status group_rms_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                         const View& x, std::int64_t groups, const View& weight,
                                         const RmsNormBackwardOptions& options, const Execution& execution) {
  const rn_scratch memory = groups_scratch(x);
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_group_rms_norm_backward(dx.get(), dweight.get(), dbias.get(), dy.get(), x.get(), groups, weight.get(),
                                    &memory, &o, &e);
}

}  // namespace detail

// RMSNorm over the channels of each pixel of [N, C, ..]. See rn_rms_norm_channels.
inline void rms_norm_channels(const View& out, const View& x, const View& weight = {}, const View& bias = {},
                              const RmsNormOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::rms_norm_channels(out, x, weight, bias, options, execution));
}
inline Status try_rms_norm_channels(const View& out, const View& x, const View& weight = {}, const View& bias = {},
                                    const RmsNormOptions& options = {}, const Execution& execution = {}) {
  return detail::status(detail::rms_norm_channels(out, x, weight, bias, options, execution));
}

// RMSNorm over groups of channels and all pixels. See rn_group_rms_norm.
inline void group_rms_norm(const View& out, const View& x, std::int64_t groups, const View& weight = {},
                           const View& bias = {}, const RmsNormOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::group_rms_norm(out, x, groups, weight, bias, options, execution));
}
inline Status try_group_rms_norm(const View& out, const View& x, std::int64_t groups, const View& weight = {},
                                 const View& bias = {}, const RmsNormOptions& options = {},
                                 const Execution& execution = {}) {
  return detail::status(detail::group_rms_norm(out, x, groups, weight, bias, options, execution));
}

// Gradients of rms_norm_channels. See rn_rms_norm_channels_backward. May allocate scratch.
inline void rms_norm_channels_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                       const View& x, const View& weight = {},
                                       const RmsNormBackwardOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::rms_norm_channels_backward(dx, dweight, dbias, dy, x, weight, options, execution));
}
inline Status try_rms_norm_channels_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                             const View& x, const View& weight = {},
                                             const RmsNormBackwardOptions& options = {},
                                             const Execution& execution = {}) {
  return detail::status(detail::rms_norm_channels_backward(dx, dweight, dbias, dy, x, weight, options, execution));
}

// Gradients of group_rms_norm. See rn_group_rms_norm_backward. May allocate scratch.
inline void group_rms_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                    const View& x, std::int64_t groups, const View& weight = {},
                                    const RmsNormBackwardOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::group_rms_norm_backward(dx, dweight, dbias, dy, x, groups, weight, options, execution));
}
inline Status try_group_rms_norm_backward(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                          const View& x, std::int64_t groups, const View& weight = {},
                                          const RmsNormBackwardOptions& options = {}, const Execution& execution = {}) {
  return detail::status(detail::group_rms_norm_backward(dx, dweight, dbias, dy, x, groups, weight, options, execution));
}

}  // namespace rmsnorm

#endif  // RMSNORM_CHANNELS_HPP_
