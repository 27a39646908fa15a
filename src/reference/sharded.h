// Norms of a slice of each row, given what the whole row adds up to:
//   RMSNorm    inv = 1 / sqrt(sum_squares / D + epsilon),  out = x * inv * (weight + offset) + bias
//              dx = inv * g - inv^3 * x * sum_products / D
//   LayerNorm  m = sum / D,  inv = 1 / sqrt(sum_squares / D + epsilon),  out = (x - m) * inv * (weight + offset) + bias
//              dx = inv * (g - sum_gradients / D - (x - m) * inv^2 * sum_products / D)
// with g = dy * (weight + offset) and D the columns of the whole row.
#ifndef RMSNORM_REFERENCE_SHARDED_H_
#define RMSNORM_REFERENCE_SHARDED_H_

#include <vector>

#include "reference/rms_norm_backward.h"

namespace rmsnorm::reference {

// What a slice adds up to, or all slices of a row together.
struct Totals {
  double sum = 0, sum_squares = 0;             // of x; of (x - mean)^2, where RMSNorm has no mean
  double sum_gradients = 0, sum_products = 0;  // of g; of g (x - mean)
  double cols = 1;                             // of the whole row

  Quad mean(bool layer) const { return layer ? static_cast<Quad>(sum) / cols : Quad{0}; }
};

template <class Real>
struct SliceSums {
  Real sum = 0, squares = 0, gradients = 0, products = 0;
  Real magnitudes = 0, gradient_magnitudes = 0, product_magnitudes = 0;  // sums of absolute terms
};

// dy: null where no gradient is wanted.
template <class Real>
SliceSums<Real> slice_sums(const double* x, const double* dy, std::int64_t cols, const Parameters& p, Real mean) {
  SliceSums<Real> s;
  const auto magnitude = [](Real v) { return v < 0 ? -v : v; };
  for (std::int64_t i = 0; i < cols; ++i) {
    const Real centred = static_cast<Real>(x[i]) - mean;
    s.sum += static_cast<Real>(x[i]);
    s.magnitudes += magnitude(static_cast<Real>(x[i]));
    s.squares += centred * centred;
    if (dy == nullptr) continue;
    const Real g = gradient_at_norm<Real>(dy, p, i);
    s.gradients += g;
    s.gradient_magnitudes += magnitude(g);
    s.products += g * centred;
    s.product_magnitudes += magnitude(g * centred);
  }
  return s;
}

inline Quad slice_inverse(const Totals& t, double epsilon, rn_epsilon_placement placement) {
  const Quad mean_square = static_cast<Quad>(t.sum_squares) / t.cols;
  return placement == RN_EPSILON_INSIDE ? 1 / square_root(mean_square + static_cast<Quad>(epsilon))
                                        : 1 / (square_root(mean_square) + static_cast<Quad>(epsilon));
}

// Returns inv. `before_weight` is for 16-bit x.
inline Quad slice_norm(Quad* out, const double* x, std::int64_t cols, rn_type x_type, const Parameters& p,
                       const Totals& t, bool layer, const rn_rms_norm_options& options) {
  const Quad inv = slice_inverse(t, options.epsilon, options.epsilon_placement);
  const bool rounds_before = options.rounding == RN_ROUND_BEFORE_WEIGHT && (x_type == RN_F16 || x_type == RN_BF16);
  for (std::int64_t i = 0; i < cols; ++i) {
    // Without a mean nothing is taken away: -0 stays -0.
    const Quad n = (layer ? static_cast<Quad>(x[i]) - t.mean(true) : static_cast<Quad>(x[i])) * inv;
    out[i] = rounds_before ? static_cast<Quad>(affine_after_rounding(n, p, i, x_type)) : affine(n, p, i);
  }
  return inv;
}

inline GradientRow<Quad> slice_norm_backward(const double* dy, const double* x, std::int64_t cols, const Parameters& p,
                                             const Totals& t, bool layer, const rn_rms_norm_options& options) {
  const Quad inv = slice_inverse(t, options.epsilon, options.epsilon_placement);
  const Quad share = static_cast<Quad>(t.sum_products) / t.cols;
  const Quad r = square_root(static_cast<Quad>(t.sum_squares) / t.cols);
  Quad slope = inv * inv * inv * share;
  if (options.epsilon_placement == RN_EPSILON_OUTSIDE) slope = r == 0 ? Quad{0} : inv * inv * share / r;
  const Quad mean_g = layer ? static_cast<Quad>(t.sum_gradients) / t.cols : Quad{0};
  GradientRow<Quad> row;
  for (std::int64_t i = 0; i < cols; ++i) {
    const Quad centred = static_cast<Quad>(x[i]) - t.mean(layer);
    const Quad direct = inv * gradient_at_norm<Quad>(dy, p, i);
    const Quad through = centred * slope;
    row.dx.push_back(layer ? direct - inv * mean_g - through : direct - through);
    row.normalised.push_back(centred * inv);
    for (const Quad term : {direct, through, row.dx.back()}) {
      row.largest = std::max(row.largest, absolute(term));
    }
  }
  return row;
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_SHARDED_H_
