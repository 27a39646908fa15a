// rms_norm_quantize and add_rms_norm_quantize. A quantised output has no gradient.
#ifndef RMSNORM_TORCH_QUANTIZE_H_
#define RMSNORM_TORCH_QUANTIZE_H_

#include "add_norms.h"

namespace rmsnorm_torch {

inline rmsnorm::Scaling scaling(const char* op, const std::string& text) {
  return choice<rmsnorm::Scaling>(op, "scaling", text, {"static", "per_row", "per_group"});
}

inline TwoTensors quantized_like(const Tensor& x, rmsnorm::Scaling by, at::ScalarType dtype) {
  if (by == rmsnorm::Scaling::kStatic) return {dense_like(x, dtype), at::empty({0}, x.options().dtype(at::kFloat))};
  c10::SymDimVector shape(x.sym_sizes().begin(), x.sym_sizes().end());
  shape.back() =
      by == rmsnorm::Scaling::kPerRow ? c10::SymInt(1) : (shape.back() + RN_SCALE_GROUP - 1) / RN_SCALE_GROUP;
  return {dense_like(x, dtype), dense(x, shape, at::kFloat)};
}

inline TwoTensors rms_norm_quantize_cpu(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                                        double epsilon, double weight_offset, std::string placement, std::string round,
                                        int64_t partial, std::string by, double static_scale, bool power_of_two,
                                        at::ScalarType dtype) {
  const Tensor in = rows(x);
  const OptionalTensor w = rows(weight), b = rows(bias);
  const rmsnorm::Scaling how = scaling("rms_norm_quantize", by);
  const auto result = quantized_like(x, how, dtype);
  const auto& [out, scale] = result;
  const auto sv = wanted(scale, how != rmsnorm::Scaling::kStatic);
  const rmsnorm::RmsNormQuantizeOptions options = {
      {epsilon, weight_offset, epsilon_placement("rms_norm_quantize", placement), rounding("rms_norm_quantize", round),
       partial},
      {how, static_cast<float>(static_scale), power_of_two}};
  run([&, &out = out] { rmsnorm::rms_norm_quantize(view(out), sv, view(in), view(w), view(b), options, execution()); });
  return result;
}

inline TwoTensors rms_norm_quantize_meta(const Tensor& x, const OptionalTensor&, const OptionalTensor&, double, double,
                                         std::string, std::string, int64_t, std::string by, double, bool,
                                         at::ScalarType dtype) {
  return quantized_like(x, scaling("rms_norm_quantize", by), dtype);
}

inline ThreeTensors add_rms_norm_quantize_cpu(const Tensor& x, const Tensor& residual, const OptionalTensor& weight,
                                              const OptionalTensor& bias, double epsilon, double weight_offset,
                                              std::string placement, std::string round, int64_t partial,
                                              std::string input, std::string by, double static_scale, bool power_of_two,
                                              at::ScalarType dtype) {
  constexpr char kName[] = "add_rms_norm_quantize";
  const Tensor in = rows(x), r = rows(residual);
  const OptionalTensor w = rows(weight), b = rows(bias);
  const rmsnorm::Scaling how = scaling(kName, by);
  const auto [out, scale] = quantized_like(x, how, dtype);
  const Tensor sum = dense_like(x, residual.scalar_type());
  const auto sv = wanted(scale, how != rmsnorm::Scaling::kStatic);
  const rmsnorm::AddRmsNormQuantizeOptions options = {
      {{epsilon, weight_offset, epsilon_placement(kName, placement), rounding(kName, round), partial},
       norm_input(kName, input)},
      {how, static_cast<float>(static_scale), power_of_two}};
  const auto ov = view(out), rv = view(sum);
  run([&] { rmsnorm::add_rms_norm_quantize(ov, rv, sv, view(in), view(r), view(w), view(b), options, execution()); });
  return {out, sum, scale};
}

inline ThreeTensors add_rms_norm_quantize_meta(const Tensor& x, const Tensor& residual, const OptionalTensor&,
                                               const OptionalTensor&, double, double, std::string, std::string, int64_t,
                                               std::string, std::string by, double, bool, at::ScalarType dtype) {
  const auto [out, scale] = quantized_like(x, scaling("add_rms_norm_quantize", by), dtype);
  return {out, dense_like(x, residual.scalar_type()), scale};
}

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_QUANTIZE_H_
