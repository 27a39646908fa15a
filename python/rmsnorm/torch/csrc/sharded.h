// Norms of rows whose columns are split over ranks: the sums of a slice, and what is done with everybody's. How the sums
// travel is written in Python (sharded.py), where process groups are.
#ifndef RMSNORM_TORCH_SHARDED_H_
#define RMSNORM_TORCH_SHARDED_H_

#include "norms.h"

namespace rmsnorm_torch {

// One f64 number for each row.
inline Tensor row_sums(const Tensor& x) { return dense(x, x.sym_sizes().slice(0, x.dim() - 1), at::kDouble); }

// Two of them, [2, ..]: they travel together.
inline Tensor row_sum_pairs(const Tensor& x) {
  c10::SymDimVector sizes(x.sym_sizes().slice(0, x.dim() - 1));
  sizes.insert(sizes.begin(), c10::SymInt(2));
  return dense(x, sizes, at::kDouble);
}

// ---- RMSNorm -------------------------------------------------------------------------------------------------------

inline Tensor rms_sum_squares_cpu(const Tensor& x) {
  const Tensor in = rows(x);
  const Tensor out = row_sums(x);
  run([&] { rmsnorm::rms_sum_squares(view(out), view(in), execution()); });
  return out;
}

inline Tensor rms_sum_squares_meta(const Tensor& x) { return row_sums(x); }

inline Tensor rms_norm_apply_cpu(const Tensor& x, const Tensor& sum_squares, int64_t total_cols,
                                 const OptionalTensor& weight, const OptionalTensor& bias, double epsilon,
                                 double weight_offset, std::string placement, std::string round, OptionalType dtype) {
  const Tensor in = rows(x);
  const OptionalTensor w = rows(weight), b = rows(bias);
  const Tensor out = dense_like(x, dtype);
  const rmsnorm::RmsNormOptions options = {epsilon, weight_offset, epsilon_placement("rms_norm_apply", placement),
                                           rounding("rms_norm_apply", round)};
  run([&] {
    rmsnorm::rms_norm_apply(view(out), {}, view(in), view(sum_squares), total_cols, view(w), view(b), options,
                            execution());
  });
  return out;
}

inline Tensor rms_norm_apply_meta(const Tensor& x, const Tensor&, int64_t, const OptionalTensor&, const OptionalTensor&,
                                  double, double, std::string, std::string, OptionalType dtype) {
  return dense_like(x, dtype);
}

inline Tensor rms_backward_sum_cpu(const Tensor& dy, const Tensor& x, const OptionalTensor& weight,
                                   double weight_offset) {
  const Tensor g = rows(dy), in = rows(x);
  const OptionalTensor w = rows(weight);
  const Tensor out = row_sums(x);
  run([&] { rmsnorm::rms_backward_sum(view(out), view(g), view(in), view(w), weight_offset, execution()); });
  return out;
}

inline Tensor rms_backward_sum_meta(const Tensor&, const Tensor& x, const OptionalTensor&, double) {
  return row_sums(x);
}

inline ThreeTensors rms_norm_backward_apply_cpu(const Tensor& dy, const Tensor& x, const Tensor& sum_squares,
                                                const Tensor& sum_products, int64_t total_cols,
                                                const OptionalTensor& weight, double epsilon, double weight_offset,
                                                std::string placement, at::ScalarType dbias_type,
                                                std::array<bool, 3> wants) {
  const Tensor g = rows(dy), in = rows(x);
  const OptionalTensor w = rows(weight);
  const auto result = gradients_like(x, weight, dbias_type, wants);
  const auto& [dx, dweight, dbias] = result;
  const auto dwv = wanted(dweight, wants[1]), dbv = wanted(dbias, wants[2]);
  const rmsnorm::RmsNormBackwardOptions options = {
      {epsilon, weight_offset, epsilon_placement("rms_norm_backward_apply", placement)}};
  run([&] {
    rmsnorm::rms_norm_backward_apply(view(dx), dwv, dbv, view(g), view(in), view(sum_squares), view(sum_products),
                                     total_cols, view(w), options, execution());
  });
  return result;
}

inline ThreeTensors rms_norm_backward_apply_meta(const Tensor&, const Tensor& x, const Tensor&, const Tensor&, int64_t,
                                                 const OptionalTensor& weight, double, double, std::string,
                                                 at::ScalarType dbias_type, std::array<bool, 3> wants) {
  return gradients_like(x, weight, dbias_type, wants);
}

// ---- LayerNorm -----------------------------------------------------------------------------------------------------

inline Tensor layer_sum_cpu(const Tensor& x) {
  const Tensor in = rows(x);
  const Tensor out = row_sums(x);
  run([&] { rmsnorm::layer_sum(view(out), view(in), execution()); });
  return out;
}

inline Tensor layer_sum_meta(const Tensor& x) { return row_sums(x); }

inline Tensor layer_sum_squares_cpu(const Tensor& x, const Tensor& sum, int64_t total_cols) {
  const Tensor in = rows(x);
  const Tensor out = row_sums(x);
  run([&] { rmsnorm::layer_sum_squares(view(out), view(in), view(sum), total_cols, execution()); });
  return out;
}

inline Tensor layer_sum_squares_meta(const Tensor& x, const Tensor&, int64_t) { return row_sums(x); }

inline Tensor layer_norm_apply_cpu(const Tensor& x, const Tensor& sum, const Tensor& sum_squares, int64_t total_cols,
                                   const OptionalTensor& weight, const OptionalTensor& bias, double epsilon,
                                   double weight_offset, OptionalType dtype) {
  const Tensor in = rows(x);
  const OptionalTensor w = rows(weight), b = rows(bias);
  const Tensor out = dense_like(x, dtype);
  const rmsnorm::LayerNormOptions options = {epsilon, weight_offset};
  run([&] {
    rmsnorm::layer_norm_apply(view(out), {}, {}, view(in), view(sum), view(sum_squares), total_cols, view(w), view(b),
                              options, execution());
  });
  return out;
}

inline Tensor layer_norm_apply_meta(const Tensor& x, const Tensor&, const Tensor&, int64_t, const OptionalTensor&,
                                    const OptionalTensor&, double, double, OptionalType dtype) {
  return dense_like(x, dtype);
}

// [2, ..]: the sums of the gradients, then those of their products with x - mean.
inline Tensor layer_backward_sums_cpu(const Tensor& dy, const Tensor& x, const Tensor& sum, int64_t total_cols,
                                      const OptionalTensor& weight, double weight_offset) {
  const Tensor g = rows(dy), in = rows(x);
  const OptionalTensor w = rows(weight);
  const Tensor out = row_sum_pairs(x);
  run([&] {
    rmsnorm::layer_backward_sums(view(out.select(0, 0)), view(out.select(0, 1)), view(g), view(in), view(sum),
                                 total_cols, view(w), weight_offset, execution());
  });
  return out;
}

inline Tensor layer_backward_sums_meta(const Tensor&, const Tensor& x, const Tensor&, int64_t, const OptionalTensor&,
                                       double) {
  return row_sum_pairs(x);
}

// totals: as layer_backward_sums has them, added over the ranks.
inline ThreeTensors layer_norm_backward_apply_cpu(const Tensor& dy, const Tensor& x, const Tensor& sum,
                                                  const Tensor& sum_squares, const Tensor& totals, int64_t total_cols,
                                                  const OptionalTensor& weight, double epsilon, double weight_offset,
                                                  at::ScalarType dbias_type, std::array<bool, 3> wants) {
  const Tensor g = rows(dy), in = rows(x);
  const OptionalTensor w = rows(weight);
  const auto result = gradients_like(x, weight, dbias_type, wants);
  const auto& [dx, dweight, dbias] = result;
  const auto dwv = wanted(dweight, wants[1]), dbv = wanted(dbias, wants[2]);
  const rmsnorm::LayerNormBackwardOptions options = {{epsilon, weight_offset}};
  TORCH_CHECK_VALUE(totals.dim() == x.dim() && totals.size(0) == 2,
                    "layer_norm_backward_apply: the shape of totals is ", totals.sizes(),
                    "; it must be [2, ..], two sums for each row of x");
  run([&] {
    rmsnorm::layer_norm_backward_apply(view(dx), dwv, dbv, view(g), view(in), view(sum), view(sum_squares),
                                       view(totals.select(0, 0)), view(totals.select(0, 1)), total_cols, view(w),
                                       options, execution());
  });
  return result;
}

inline ThreeTensors layer_norm_backward_apply_meta(const Tensor&, const Tensor& x, const Tensor&, const Tensor&,
                                                   const Tensor&, int64_t, const OptionalTensor& weight, double, double,
                                                   at::ScalarType dbias_type, std::array<bool, 3> wants) {
  return gradients_like(x, weight, dbias_type, wants);
}

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_SHARDED_H_
