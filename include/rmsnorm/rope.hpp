// RMSNorm of each head of Q and K, then rotary position embedding.
#ifndef RMSNORM_ROPE_HPP_
#define RMSNORM_ROPE_HPP_

#include "rmsnorm/norms.hpp"
#include "rmsnorm/rope.h"

namespace rmsnorm {

enum class RopeLayout { kHalfSplit = RN_ROPE_HALF_SPLIT, kInterleaved = RN_ROPE_INTERLEAVED };

struct QkNormRopeOptions : RmsNormOptions {
  RopeLayout rope_layout = RopeLayout::kHalfSplit;
};

// Heads first .. first+count-1 of a view [.., heads, head_dim]. See rn_heads.
inline View heads(const View& packed, std::int64_t first, std::int64_t count) {
  return View(rn_heads(packed.get(), first, count));
}

namespace detail {

inline rn_status qk_norm_rope(const View& q_out, const View& k_out, const View& q, const View& k, const View& q_weight,
                              const View& k_weight, const View& cos_sin, const View& positions,
                              const QkNormRopeOptions& options, const Execution& execution) noexcept {
  const rn_qk_norm_rope_options o = {c_options(static_cast<const RmsNormOptions&>(options)),
                                     static_cast<rn_rope_layout>(options.rope_layout)};
  const auto e = c_execution(execution);
  return rn_qk_norm_rope(q_out.get(), k_out.get(), q.get(), k.get(), q_weight.get(), k_weight.get(), cos_sin.get(),
                         positions.get(), &o, &e);
}

}  // namespace detail

// Each head of Q and K: rms_norm, then a' = a cos - b sin, b' = b cos + a sin. See rn_qk_norm_rope.
inline void qk_norm_rope(const View& q_out, const View& k_out, const View& q, const View& k, const View& q_weight = {},
                         const View& k_weight = {}, const View& cos_sin = {}, const View& positions = {},
                         const QkNormRopeOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::qk_norm_rope(q_out, k_out, q, k, q_weight, k_weight, cos_sin, positions, options, execution));
}
inline Status try_qk_norm_rope(const View& q_out, const View& k_out, const View& q, const View& k,
                               const View& q_weight = {}, const View& k_weight = {}, const View& cos_sin = {},
                               const View& positions = {}, const QkNormRopeOptions& options = {},
                               const Execution& execution = {}) {
  return detail::status(
      detail::qk_norm_rope(q_out, k_out, q, k, q_weight, k_weight, cos_sin, positions, options, execution));
}

}  // namespace rmsnorm

#endif  // RMSNORM_ROPE_HPP_
