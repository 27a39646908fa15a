// Norms whose hidden axis is split over devices. See sharded.h, which says in what order the calls come.
#ifndef RMSNORM_SHARDED_HPP_
#define RMSNORM_SHARDED_HPP_

#include "rmsnorm/backward.hpp"
#include "rmsnorm/norms.hpp"
#include "rmsnorm/sharded.h"

namespace rmsnorm {

namespace detail {

inline rn_status rms_sum_squares(const View& sum_squares, const View& x, const Execution& execution) {
  const auto e = c_execution(execution);
  return rn_rms_sum_squares(sum_squares.get(), x.get(), &e);
}

inline rn_status rms_norm_apply(const View& out, const View& inv_rms, const View& x, const View& sum_squares,
                                std::int64_t total_cols, const View& weight, const View& bias,
                                const RmsNormOptions& options, const Execution& execution) {
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_rms_norm_apply(out.get(), inv_rms.get(), x.get(), sum_squares.get(), total_cols, weight.get(), bias.get(),
                           &o, &e);
}

inline rn_status rms_backward_sum(const View& sum_products, const View& dy, const View& x, const View& weight,
                                  double weight_offset, const Execution& execution) {
  const auto e = c_execution(execution);
  return rn_rms_backward_sum(sum_products.get(), dy.get(), x.get(), weight.get(), weight_offset, &e);
}

inline rn_status rms_norm_backward_apply(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                         const View& x, const View& sum_squares, const View& sum_products,
                                         std::int64_t total_cols, const View& weight,
                                         const RmsNormBackwardOptions& options, const Execution& execution) {
  const rn_scratch memory = backward_scratch(x);
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_rms_norm_backward_apply(dx.get(), dweight.get(), dbias.get(), dy.get(), x.get(), sum_squares.get(),
                                    sum_products.get(), total_cols, weight.get(), &memory, &o, &e);
}

inline rn_status layer_sum(const View& sum, const View& x, const Execution& execution) {
  const auto e = c_execution(execution);
  return rn_layer_sum(sum.get(), x.get(), &e);
}

inline rn_status layer_sum_squares(const View& sum_squares, const View& x, const View& sum, std::int64_t total_cols,
                                   const Execution& execution) {
  const auto e = c_execution(execution);
  return rn_layer_sum_squares(sum_squares.get(), x.get(), sum.get(), total_cols, &e);
}

inline rn_status layer_norm_apply(const View& out, const View& mean, const View& inv_std, const View& x,
                                  const View& sum, const View& sum_squares, std::int64_t total_cols, const View& weight,
                                  const View& bias, const LayerNormOptions& options, const Execution& execution) {
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_layer_norm_apply(out.get(), mean.get(), inv_std.get(), x.get(), sum.get(), sum_squares.get(), total_cols,
                             weight.get(), bias.get(), &o, &e);
}

inline rn_status layer_backward_sums(const View& sum_gradients, const View& sum_products, const View& dy, const View& x,
                                     const View& sum, std::int64_t total_cols, const View& weight, double weight_offset,
                                     const Execution& execution) {
  const auto e = c_execution(execution);
  return rn_layer_backward_sums(sum_gradients.get(), sum_products.get(), dy.get(), x.get(), sum.get(), total_cols,
                                weight.get(), weight_offset, &e);
}

inline rn_status layer_norm_backward_apply(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                           const View& x, const View& sum, const View& sum_squares,
                                           const View& sum_gradients, const View& sum_products, std::int64_t total_cols,
                                           const View& weight, const LayerNormBackwardOptions& options,
                                           const Execution& execution) {
  const rn_scratch memory = backward_scratch(x);
  const auto o = c_options(options);
  const auto e = c_execution(execution);
  return rn_layer_norm_backward_apply(dx.get(), dweight.get(), dbias.get(), dy.get(), x.get(), sum.get(),
                                      sum_squares.get(), sum_gradients.get(), sum_products.get(), total_cols,
                                      weight.get(), &memory, &o, &e);
}

}  // namespace detail

// total[i] = parts[i] + parts[count + i] + .., in the order of the ranks. See rn_add_rank_sums.
inline void add_rank_sums(double* total, const double* parts, std::int64_t ranks, std::int64_t count) {
  detail::require(rn_add_rank_sums(total, parts, ranks, count));
}
inline Status try_add_rank_sums(double* total, const double* parts, std::int64_t ranks, std::int64_t count) {
  return detail::status(rn_add_rank_sums(total, parts, ranks, count));
}

// sum_squares = sum of x^2 over this rank's slice. See rn_rms_sum_squares.
inline void rms_sum_squares(const View& sum_squares, const View& x, const Execution& execution = {}) {
  detail::require(detail::rms_sum_squares(sum_squares, x, execution));
}
inline Status try_rms_sum_squares(const View& sum_squares, const View& x, const Execution& execution = {}) {
  return detail::status(detail::rms_sum_squares(sum_squares, x, execution));
}

// rms_norm of a slice, given the total of all ranks. See rn_rms_norm_apply.
inline void rms_norm_apply(const View& out, const View& inv_rms, const View& x, const View& sum_squares,
                           std::int64_t total_cols, const View& weight = {}, const View& bias = {},
                           const RmsNormOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::rms_norm_apply(out, inv_rms, x, sum_squares, total_cols, weight, bias, options, execution));
}
inline Status try_rms_norm_apply(const View& out, const View& inv_rms, const View& x, const View& sum_squares,
                                 std::int64_t total_cols, const View& weight = {}, const View& bias = {},
                                 const RmsNormOptions& options = {}, const Execution& execution = {}) {
  return detail::status(
      detail::rms_norm_apply(out, inv_rms, x, sum_squares, total_cols, weight, bias, options, execution));
}

// sum_products = sum of dy (weight + weight_offset) x over the slice. See rn_rms_backward_sum.
inline void rms_backward_sum(const View& sum_products, const View& dy, const View& x, const View& weight = {},
                             double weight_offset = 0, const Execution& execution = {}) {
  detail::require(detail::rms_backward_sum(sum_products, dy, x, weight, weight_offset, execution));
}
inline Status try_rms_backward_sum(const View& sum_products, const View& dy, const View& x, const View& weight = {},
                                   double weight_offset = 0, const Execution& execution = {}) {
  return detail::status(detail::rms_backward_sum(sum_products, dy, x, weight, weight_offset, execution));
}

// rms_norm_backward of a slice, given the totals. See rn_rms_norm_backward_apply. May allocate scratch.
inline void rms_norm_backward_apply(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                    const View& x, const View& sum_squares, const View& sum_products,
                                    std::int64_t total_cols, const View& weight = {},
                                    const RmsNormBackwardOptions& options = {}, const Execution& execution = {}) {
  detail::require(detail::rms_norm_backward_apply(dx, dweight, dbias, dy, x, sum_squares, sum_products, total_cols,
                                                  weight, options, execution));
}
inline Status try_rms_norm_backward_apply(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                          const View& x, const View& sum_squares, const View& sum_products,
                                          std::int64_t total_cols, const View& weight = {},
                                          const RmsNormBackwardOptions& options = {}, const Execution& execution = {}) {
  return detail::status(detail::rms_norm_backward_apply(dx, dweight, dbias, dy, x, sum_squares, sum_products,
                                                        total_cols, weight, options, execution));
}

// sum = sum of x over the slice: LayerNorm's first round. See rn_layer_sum.
inline void layer_sum(const View& sum, const View& x, const Execution& execution = {}) {
  detail::require(detail::layer_sum(sum, x, execution));
}
inline Status try_layer_sum(const View& sum, const View& x, const Execution& execution = {}) {
  return detail::status(detail::layer_sum(sum, x, execution));
}

// sum_squares = sum of (x - mean)^2 over the slice: LayerNorm's second round. See rn_layer_sum_squares.
inline void layer_sum_squares(const View& sum_squares, const View& x, const View& sum, std::int64_t total_cols,
                              const Execution& execution = {}) {
  detail::require(detail::layer_sum_squares(sum_squares, x, sum, total_cols, execution));
}
inline Status try_layer_sum_squares(const View& sum_squares, const View& x, const View& sum, std::int64_t total_cols,
                                    const Execution& execution = {}) {
  return detail::status(detail::layer_sum_squares(sum_squares, x, sum, total_cols, execution));
}

// layer_norm of a slice, given the totals. See rn_layer_norm_apply.
inline void layer_norm_apply(const View& out, const View& mean, const View& inv_std, const View& x, const View& sum,
                             const View& sum_squares, std::int64_t total_cols, const View& weight = {},
                             const View& bias = {}, const LayerNormOptions& options = {},
                             const Execution& execution = {}) {
  detail::require(
      detail::layer_norm_apply(out, mean, inv_std, x, sum, sum_squares, total_cols, weight, bias, options, execution));
}
inline Status try_layer_norm_apply(const View& out, const View& mean, const View& inv_std, const View& x,
                                   const View& sum, const View& sum_squares, std::int64_t total_cols,
                                   const View& weight = {}, const View& bias = {}, const LayerNormOptions& options = {},
                                   const Execution& execution = {}) {
  return detail::status(
      detail::layer_norm_apply(out, mean, inv_std, x, sum, sum_squares, total_cols, weight, bias, options, execution));
}

// Sums of g and of g (x - mean) over the slice, g = dy (weight + weight_offset). See rn_layer_backward_sums.
inline void layer_backward_sums(const View& sum_gradients, const View& sum_products, const View& dy, const View& x,
                                const View& sum, std::int64_t total_cols, const View& weight = {},
                                double weight_offset = 0, const Execution& execution = {}) {
  detail::require(detail::layer_backward_sums(sum_gradients, sum_products, dy, x, sum, total_cols, weight,
                                              weight_offset, execution));
}
inline Status try_layer_backward_sums(const View& sum_gradients, const View& sum_products, const View& dy,
                                      const View& x, const View& sum, std::int64_t total_cols, const View& weight = {},
                                      double weight_offset = 0, const Execution& execution = {}) {
  return detail::status(detail::layer_backward_sums(sum_gradients, sum_products, dy, x, sum, total_cols, weight,
                                                    weight_offset, execution));
}

// layer_norm_backward of a slice, given the totals. See rn_layer_norm_backward_apply. May allocate scratch.
inline void layer_norm_backward_apply(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                      const View& x, const View& sum, const View& sum_squares,
                                      const View& sum_gradients, const View& sum_products, std::int64_t total_cols,
                                      const View& weight = {}, const LayerNormBackwardOptions& options = {},
                                      const Execution& execution = {}) {
  detail::require(detail::layer_norm_backward_apply(dx, dweight, dbias, dy, x, sum, sum_squares, sum_gradients,
                                                    sum_products, total_cols, weight, options, execution));
}
inline Status try_layer_norm_backward_apply(const View& dx, const View& dweight, const View& dbias, const View& dy,
                                            const View& x, const View& sum, const View& sum_squares,
                                            const View& sum_gradients, const View& sum_products,
                                            std::int64_t total_cols, const View& weight = {},
                                            const LayerNormBackwardOptions& options = {},
                                            const Execution& execution = {}) {
  return detail::status(detail::layer_norm_backward_apply(dx, dweight, dbias, dy, x, sum, sum_squares, sum_gradients,
                                                          sum_products, total_cols, weight, options, execution));
}

}  // namespace rmsnorm

#endif  // RMSNORM_SHARDED_HPP_
