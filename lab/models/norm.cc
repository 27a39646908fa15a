#include "lab/models/norm.h"

#include <ATen/record_function.h>

#include <cmath>

#include "lab/models/names.h"
#include "python/rmsnorm/torch/csrc/add_norms.h"
#include "python/rmsnorm/torch/csrc/channels.h"

namespace rmsnorm::lab {
namespace {

using rmsnorm_torch::or_absent;
using torch::Tensor;

constexpr std::array<const char*, 9> kKinds = {
    "none",       "layer_norm",       "rms_norm",       "partial_rms_norm",    "batch_norm",
    "group_norm", "channel_rms_norm", "group_rms_norm", "per_channel_rms_norm"};
constexpr std::array<const char*, 3> kCodes = {"fused", "eager", "native"};

// The operators have no defaults of their own; these are the ones of rmsnorm/torch/functions.py.
constexpr double kWeightOffset = 0;
constexpr const char* kRounding = "once";
constexpr const char* kNormInput = "rounded_sum";

constexpr double kMomentum = 0.1;  // of the running mean and variance, torch.nn.BatchNorm2d's default

bool over_rows(NormKind kind) {
  return kind == NormKind::kLayerNorm || kind == NormKind::kRmsNorm || kind == NormKind::kPartialRmsNorm;
}

bool has_bias(NormKind kind) {
  return kind == NormKind::kLayerNorm || kind == NormKind::kBatchNorm || kind == NormKind::kGroupNorm;
}

bool implemented(NormKind kind, NormCode code) {
  if (code == NormCode::kEager || kind == NormKind::kNone) return true;
  const bool of_pytorch = has_bias(kind) || kind == NormKind::kRmsNorm;
  if (code == NormCode::kNative) return of_pytorch;
  return kind != NormKind::kBatchNorm && kind != NormKind::kGroupNorm;
}

bool takes_epsilon_outside(NormKind kind, NormCode code) {
  const bool rms_of_rows = kind == NormKind::kRmsNorm || kind == NormKind::kPartialRmsNorm;
  return code == NormCode::kEager || kind == NormKind::kNone || (code == NormCode::kFused && rms_of_rows);
}

[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument("norm: " + text); }

void check_options(const NormOptions& o, std::int64_t width) {
  if (width < 1) refuse(fmt::format("width is {}; it must be at least 1", width));
  if (!(o.epsilon >= 0)) refuse(fmt::format("epsilon is {}; it must be at least 0", o.epsilon));
  if (!(o.share > 0 && o.share <= 1)) refuse(fmt::format("share is {}; it must be above 0 and at most 1", o.share));
  if (o.groups < 1 || width % o.groups != 0) {
    refuse(fmt::format("groups is {}; it must divide the width, {}", o.groups, width));
  }
  if (!implemented(o.kind, o.code)) {
    refuse(fmt::format("code is {}; {} has no such implementation, it must be another of {}", name_of(o.code),
                       name_of(o.kind), fmt::join(kCodes, ", ")));
  }
  if (!o.epsilon_inside && !takes_epsilon_outside(o.kind, o.code)) {
    refuse(fmt::format("epsilon is outside the root; it must be inside for {} in the code {}", name_of(o.kind),
                       name_of(o.code)));
  }
  if (o.threshold && o.kind != NormKind::kPerChannelRmsNorm) {
    refuse(fmt::format("threshold is true; it must be false for {}", name_of(o.kind)));
  }
}

// Columns that kPartialRmsNorm takes its mean over: the paper's ceil(n p), with room for the rounding of p.
std::int64_t counted_columns(const NormOptions& options, std::int64_t width) {
  const double columns = options.share * static_cast<double>(width);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(columns - 1e-9)));
}

// A parameter [C] against x [N, C, H, W].
Tensor per_channel(const Tensor& parameter) { return parameter.view({-1, 1, 1}); }

// ---- Fused: the operators, which the dispatcher hands to autograd and autocast -------------------------------------

const char* epsilon_placement(const NormOptions& options) { return options.epsilon_inside ? "inside" : "outside"; }

// Columns of the mean as the operators want them; 0: all.
std::int64_t partial(const NormOptions& options, std::int64_t width) {
  return options.kind == NormKind::kPartialRmsNorm ? counted_columns(options, width) : 0;
}

Tensor fused(const NormImpl& norm, const Tensor& x) {
  const NormOptions& o = norm.options();
  const auto weight = or_absent(norm.weight), bias = or_absent(norm.bias);
  const auto channels = [&](std::int64_t groups) {
    return rmsnorm_torch::ChannelsFunction::op().call(x, groups, weight, bias, o.epsilon, kWeightOffset);
  };
  switch (o.kind) {
    case NormKind::kLayerNorm:
      return rmsnorm_torch::LayerNormOp::forward_op().call(x, weight, bias, o.epsilon, kWeightOffset, std::nullopt);
    case NormKind::kChannelRmsNorm:
      return channels(0);
    case NormKind::kGroupRmsNorm:
      return channels(o.groups);
    case NormKind::kPerChannelRmsNorm:
      return channels(x.size(1));  // groups of one channel
    default:
      return rmsnorm_torch::RmsNormOp::forward_op().call(x, weight, bias, o.epsilon, kWeightOffset,
                                                         epsilon_placement(o), kRounding, partial(o, x.size(-1)),
                                                         std::nullopt);
  }
}

std::pair<Tensor, Tensor> fused_sum(const NormImpl& norm, const Tensor& x, const Tensor& residual) {
  const NormOptions& o = norm.options();
  const auto weight = or_absent(norm.weight), bias = or_absent(norm.bias);
  const auto [out, sum] = o.kind == NormKind::kLayerNorm
                              ? rmsnorm_torch::AddLayerNormFunction::op().call(x, residual, weight, bias, o.epsilon,
                                                                               kWeightOffset, kNormInput, std::nullopt)
                              : rmsnorm_torch::AddRmsNormFunction::op().call(
                                    x, residual, weight, bias, o.epsilon, kWeightOffset, epsilon_placement(o),
                                    kRounding, partial(o, x.size(-1)), kNormInput, std::nullopt);
  return {out, sum};
}

// ---- Eager: the formulas in tensor operations ----------------------------------------------------------------------

// What x is divided by.
Tensor root(const Tensor& mean_square, const NormOptions& options) {
  return options.epsilon_inside ? (mean_square + options.epsilon).sqrt() : mean_square.sqrt() + options.epsilon;
}

Tensor over_root_mean_square(const Tensor& x, at::IntArrayRef axes, const NormOptions& options) {
  return x / root(x.square().mean(axes, true), options);
}

Tensor over_deviation(const Tensor& x, at::IntArrayRef axes, const NormOptions& options) {
  return over_root_mean_square(x - x.mean(axes, true), axes, options);
}

// In training the mean and variance of the batch, of which it keeps a running mean; otherwise those that it kept.
Tensor batch_norm(NormImpl& norm, const Tensor& x) {
  if (!norm.is_training()) {
    return (x - per_channel(norm.running_mean)) / root(per_channel(norm.running_var), norm.options());
  }
  const Tensor mean = x.mean({0, 2, 3}, true);
  const Tensor variance = (x - mean).square().mean({0, 2, 3}, true);
  {
    const torch::NoGradGuard guard;
    const double count = static_cast<double>(x.numel() / x.size(1));
    norm.running_mean.lerp_(mean.flatten().to(norm.running_mean.scalar_type()), kMomentum);
    norm.running_var.lerp_(variance.flatten().to(norm.running_var.scalar_type()) * (count / (count - 1)), kMomentum);
  }
  return (x - mean) / root(variance, norm.options());
}

Tensor eager(NormImpl& norm, const Tensor& narrow) {
  const NormOptions& o = norm.options();
  const Tensor x = narrow.to(torch::promote_types(narrow.scalar_type(), torch::kFloat));
  const auto in_groups = [&] { return x.reshape({x.size(0), o.groups, -1}); };
  Tensor y;
  switch (o.kind) {
    case NormKind::kNone:
      return narrow;
    case NormKind::kLayerNorm:
      y = over_deviation(x, {-1}, o);
      break;
    case NormKind::kRmsNorm:
      y = over_root_mean_square(x, {-1}, o);
      break;
    case NormKind::kPartialRmsNorm:
      y = x / root(x.narrow(-1, 0, counted_columns(o, x.size(-1))).square().mean(-1, true), o);
      break;
    case NormKind::kBatchNorm:
      y = batch_norm(norm, x);
      break;
    case NormKind::kGroupNorm:
      y = over_deviation(in_groups(), {-1}, o).view_as(x);
      break;
    case NormKind::kChannelRmsNorm:
      y = over_root_mean_square(x, {1}, o);
      break;
    case NormKind::kGroupRmsNorm:
      y = over_root_mean_square(in_groups(), {-1}, o).view_as(x);
      break;
    case NormKind::kPerChannelRmsNorm:
      y = over_root_mean_square(x, {2, 3}, o);
      break;
  }
  const bool rows = over_rows(o.kind);
  if (norm.weight.defined()) y = y * (rows ? norm.weight : per_channel(norm.weight));
  if (norm.bias.defined()) y = y + (rows ? norm.bias : per_channel(norm.bias));
  return y.to(narrow.scalar_type());
}

// ---- Native: PyTorch's functions -----------------------------------------------------------------------------------

Tensor native(NormImpl& norm, const Tensor& x) {
  const NormOptions& o = norm.options();
  const auto weight = or_absent(norm.weight), bias = or_absent(norm.bias);
  switch (o.kind) {
    case NormKind::kLayerNorm:
      return torch::layer_norm(x, {x.size(-1)}, weight, bias, o.epsilon);
    case NormKind::kRmsNorm:
      return torch::rms_norm(x, {x.size(-1)}, weight, o.epsilon);
    case NormKind::kBatchNorm:
      return torch::batch_norm(x, weight, bias, norm.running_mean, norm.running_var, norm.is_training(), kMomentum,
                               o.epsilon, /*cudnn_enabled=*/false);
    default:
      return torch::group_norm(x, o.groups, weight, bias, o.epsilon);
  }
}

}  // namespace

std::string name_of(NormKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }
std::string name_of(NormCode code) { return kCodes[static_cast<std::size_t>(code)]; }
NormKind norm_kind(const std::string& name) { return value_of<NormKind>("norm kind", name, kKinds); }
NormCode norm_code(const std::string& name) { return value_of<NormCode>("norm code", name, kCodes); }

NormImpl::NormImpl(const NormOptions& options, std::int64_t width) : options_(options), width_(width) {
  check_options(options, width);
  if (options.kind == NormKind::kNone) return;
  if (options.weight) weight = register_parameter("weight", torch::ones({width}));
  if (options.bias && has_bias(options.kind)) bias = register_parameter("bias", torch::zeros({width}));
  if (options.threshold) threshold = register_parameter("threshold", torch::zeros({width}));
  if (options.kind == NormKind::kBatchNorm) {
    running_mean = register_buffer("running_mean", torch::zeros({width}));
    running_var = register_buffer("running_var", torch::ones({width}));
  }
}

void NormImpl::check(const Tensor& x) const {
  if (options_.kind == NormKind::kNone) return;
  const bool rows = over_rows(options_.kind);
  if (rows ? x.dim() > 0 && x.size(-1) == width_ : x.dim() == 4 && x.size(1) == width_) return;
  refuse(fmt::format("x of {} is {}; it must be {}", name_of(options_.kind), c10::str(x.sizes()),
                     rows ? fmt::format("[.., {}]", width_) : fmt::format("[N, {}, H, W]", width_)));
}

Tensor NormImpl::forward(const Tensor& x) {
  RECORD_USER_SCOPE(kNormScope);
  check(x);
  if (observer) observer(x);
  if (options_.kind == NormKind::kNone) return x;
  const Tensor y = options_.code == NormCode::kFused   ? fused(*this, x)
                   : options_.code == NormCode::kEager ? eager(*this, x)
                                                       : native(*this, x);
  return threshold.defined() ? torch::maximum(y, per_channel(threshold).to(y.scalar_type())) : y;
}

std::pair<Tensor, Tensor> NormImpl::forward(const Tensor& x, const Tensor& residual) {
  RECORD_USER_SCOPE(kNormScope);
  if (options_.code == NormCode::kFused && over_rows(options_.kind)) {
    check(x);
    auto result = fused_sum(*this, x, residual);
    if (observer) observer(result.second);
    return result;
  }
  const Tensor sum = x + residual;
  return {forward(sum), sum};
}

}  // namespace rmsnorm::lab
