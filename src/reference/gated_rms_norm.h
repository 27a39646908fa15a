// Gated RMSNorm of one group of columns, and its backward; s = silu(gate):
//   gate last   out = x inv w s
//   gate first  u = x s,  out = u inv w;   inv = 1 / sqrt(mean(.^2) + epsilon) of x or of u
#ifndef RMSNORM_REFERENCE_GATED_RMS_NORM_H_
#define RMSNORM_REFERENCE_GATED_RMS_NORM_H_

#include <algorithm>
#include <vector>

#include "reference/format.h"
#include "reference/silu.h"

namespace rmsnorm::reference {

// One group, exactly widened; weight null: absent.
struct GatedInput {
  const double *x, *gate, *weight;
  std::int64_t cols;
  double epsilon;
  bool gate_first;
};

template <class Real>
struct GatedNorm {
  std::vector<Real> normalised;  // x inv or u inv
  std::vector<Activation<Real>> activation;
  Real inv = 0;
};

template <class Real>
GatedNorm<Real> gated_norm(const GatedInput& in, const double* saved_inv = nullptr) {
  GatedNorm<Real> norm;
  Real sum = 0;
  for (std::int64_t i = 0; i < in.cols; ++i) {
    norm.activation.push_back(silu<Real>(in.gate[i]));
    const Real v = static_cast<Real>(in.x[i]) * (in.gate_first ? norm.activation.back().value : Real{1});
    norm.normalised.push_back(v);
    sum += v * v;
  }
  norm.inv = 1 / square_root(sum / static_cast<Real>(in.cols) + static_cast<Real>(in.epsilon));
  if (saved_inv) norm.inv = static_cast<Real>(*saved_inv);
  for (Real& v : norm.normalised) v *= norm.inv;
  return norm;
}

// `once`: element i before its only rounding.
template <class Real>
Real gated_result(const GatedInput& in, const GatedNorm<Real>& norm, std::int64_t i) {
  const std::size_t k = static_cast<std::size_t>(i);
  const Real y = norm.normalised[k] * (in.weight ? static_cast<Real>(in.weight[i]) : Real{1});
  return in.gate_first ? y : y * norm.activation[k].value;
}

// `before_weight` for x of the 16-bit type `type`, from what the norm gave: n is rounded, the product with the weight is
// f32 and, with a weight of that same type and the gate last, rounded again.
inline Quad gated_result_after_rounding(const GatedInput& in, Quad n, Quad activation, std::int64_t i, rn_type type,
                                        rn_type weight_type) {
  Quad y = round_to(type, n);
  if (in.weight) y = round_to(RN_F32, y * static_cast<Quad>(in.weight[i]));
  if (in.gate_first) return y;
  if (in.weight && weight_type == type) y = round_to(type, y);
  return y * activation;
}

// Gradients of one group, and the magnitudes that their errors are measured by.
template <class Real>
struct GatedGradient {
  std::vector<Real> dx, dgate, dweight;  // dweight: what this row adds
  Real largest_dx = 0, largest_dgate = 0;
};

template <class Real>
GatedGradient<Real> gated_rms_norm_backward(const GatedInput& in, const double* dy, const double* saved_inv = nullptr) {
  const GatedNorm<Real> norm = gated_norm<Real>(in, saved_inv);
  const auto at_norm = [&](std::int64_t i) {
    const Real g = static_cast<Real>(dy[i]) * (in.weight ? static_cast<Real>(in.weight[i]) : Real{1});
    return in.gate_first ? g : g * norm.activation[static_cast<std::size_t>(i)].value;
  };
  Real mean = 0;  // of g xhat
  for (std::int64_t i = 0; i < in.cols; ++i) mean += at_norm(i) * norm.normalised[static_cast<std::size_t>(i)];
  mean /= static_cast<Real>(in.cols);
  GatedGradient<Real> row;
  const auto larger = [](Real& largest, Real v) { largest = std::max(largest, v < 0 ? -v : v); };
  for (std::int64_t i = 0; i < in.cols; ++i) {
    const std::size_t k = static_cast<std::size_t>(i);
    const Activation<Real> s = norm.activation[k];
    const Real direct = norm.inv * at_norm(i), through = norm.inv * (norm.normalised[k] * mean);
    const Real own = static_cast<Real>(dy[i]);
    if (in.gate_first) {
      const Real x = static_cast<Real>(in.x[i]);
      row.dx.push_back((direct - through) * s.value);
      row.dgate.push_back((direct - through) * x * s.slope);
      row.dweight.push_back(own * norm.normalised[k]);
      for (const Real term : {direct, through}) {
        larger(row.largest_dx, term * s.value);
        larger(row.largest_dgate, term * x * s.slope_terms);
      }
    } else {
      const Real factor = in.weight ? static_cast<Real>(in.weight[i]) : Real{1};
      row.dx.push_back(direct - through);
      row.dgate.push_back(own * factor * norm.normalised[k] * s.slope);
      row.dweight.push_back(own * s.value * norm.normalised[k]);
      for (const Real term : {direct, through}) larger(row.largest_dx, term);
      larger(row.largest_dgate, own * factor * norm.normalised[k] * s.slope_terms);
    }
    larger(row.largest_dx, row.dx.back());
    larger(row.largest_dgate, row.dgate.back());
  }
  return row;
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_GATED_RMS_NORM_H_
