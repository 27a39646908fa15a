// rms_norm_channels and group_rms_norm of images [N, C, ..], and their backward.
#ifndef RMSNORM_TORCH_CHANNELS_H_
#define RMSNORM_TORCH_CHANNELS_H_

#include "norms.h"

namespace rmsnorm_torch {

// groups 0: over the channels of each pixel.
inline Tensor channels_cpu(const Tensor& x, int64_t groups, const OptionalTensor& weight, const OptionalTensor& bias,
                           double epsilon, double weight_offset) {
  const Tensor in = rows(x);
  const OptionalTensor w = rows(weight), b = rows(bias);
  const Tensor out = dense_like(x);
  const rmsnorm::RmsNormOptions options = {epsilon, weight_offset};
  run([&] {
    if (groups == 0) {
      rmsnorm::rms_norm_channels(view(out), view(in), view(w), view(b), options, execution());
    } else {
      rmsnorm::group_rms_norm(view(out), view(in), groups, view(w), view(b), options, execution());
    }
  });
  return out;
}

inline Tensor channels_meta(const Tensor& x, int64_t, const OptionalTensor&, const OptionalTensor&, double, double) {
  return dense_like(x);
}

inline ThreeTensors channel_gradients_like(const Tensor& x, const OptionalTensor& weight, at::ScalarType dbias_type,
                                           const std::array<bool, 3>& wants) {
  const auto channels = x.sym_sizes().slice(1, 1);
  const at::ScalarType type = present(weight) ? weight->scalar_type() : wide(x);
  return {dense_like(x), wants[1] ? dense(x, channels, type) : nothing(x),
          wants[2] ? dense(x, channels, dbias_type) : nothing(x)};
}

inline ThreeTensors channels_backward_cpu(const Tensor& dy, const Tensor& x, int64_t groups,
                                          const OptionalTensor& weight, double epsilon, double weight_offset,
                                          at::ScalarType dbias_type, std::array<bool, 3> wants) {
  const Tensor g = rows(dy), in = rows(x);
  const OptionalTensor w = rows(weight);
  const auto result = channel_gradients_like(x, weight, dbias_type, wants);
  const auto& [dx, dweight, dbias] = result;
  const auto dwv = wanted(dweight, wants[1]), dbv = wanted(dbias, wants[2]);
  const rmsnorm::RmsNormBackwardOptions options = {{epsilon, weight_offset}};
  run([&, &dx = dx] {
    if (groups == 0) {
      rmsnorm::rms_norm_channels_backward(view(dx), dwv, dbv, view(g), view(in), view(w), options, execution());
    } else {
      rmsnorm::group_rms_norm_backward(view(dx), dwv, dbv, view(g), view(in), groups, view(w), options, execution());
    }
  });
  return result;
}

inline ThreeTensors channels_backward_meta(const Tensor&, const Tensor& x, int64_t, const OptionalTensor& weight,
                                           double, double, at::ScalarType dbias_type, std::array<bool, 3> wants) {
  return channel_gradients_like(x, weight, dbias_type, wants);
}

// The same norm over rows: the channels of a pixel are moved last, those of a group flattened with the pixels.
inline ThreeTensors channels_formula(const Tensor& dy, const Tensor& x, int64_t groups, const Tensor& weight,
                                     const Tensor& bias, double epsilon, double weight_offset,
                                     const std::array<bool, 3>& wants) {
  if (groups == 0) {
    const Gradients g =
        rms_norm_gradients(dy.movedim(1, -1), x.movedim(1, -1), weight, epsilon, weight_offset, false, 0);
    return {g.dx.movedim(-1, 1).to(x.scalar_type()), wants[1] ? as(g.dweight, weight) : Tensor(),
            wants[2] ? as(g.dbias, bias) : Tensor()};
  }
  c10::SymDimVector channel(static_cast<size_t>(x.dim()) - 1, 1);
  channel[0] = x.sym_size(1);
  const Tensor w = weight.defined() ? weight.reshape_symint(channel) : weight;
  const Tensor g = weighted(dy.to(wide(x)), w, weight_offset);
  const c10::SymDimVector parts = {x.sym_size(0), c10::SymInt(groups), c10::SymInt(-1)};
  const Tensor in = x.to(wide(x)).reshape_symint(parts), h = g.reshape_symint(parts);
  const Gradients norm = rms_norm_gradients(h, in, Tensor(), epsilon, 0, false, 0);
  const Tensor xhat = (in * (in.square().mean(-1, true) + epsilon).rsqrt()).reshape_symint(x.sym_sizes());
  const Tensor products = dy.to(wide(x)) * xhat;
  return {norm.dx.reshape_symint(x.sym_sizes()).to(x.scalar_type()),
          wants[1] ? as(at::sum_to(products, channel).reshape_symint(weight.sym_sizes()), weight) : Tensor(),
          wants[2] ? as(at::sum_to(dy.to(wide(x)), channel).reshape_symint(bias.sym_sizes()), bias) : Tensor()};
}

struct ChannelsFunction : torch::autograd::Function<ChannelsFunction> {
  static auto op() {
    static const auto value = find<decltype(channels_cpu)>("rmsnorm::channels");
    return value;
  }
  static auto backward_op() {
    static const auto value = find<decltype(channels_backward_cpu)>("rmsnorm::channels_backward");
    return value;
  }

  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t groups, const OptionalTensor& weight,
                        const OptionalTensor& bias, double epsilon, double weight_offset) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({x, or_undefined(weight), or_undefined(bias)});
    context->saved_data["groups"] = groups;
    context->saved_data["epsilon"] = epsilon;
    context->saved_data["weight_offset"] = weight_offset;
    return op().call(x, groups, weight, bias, epsilon, weight_offset);
  }

  static variable_list backward(AutogradContext* context, const variable_list& dout) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const int64_t groups = context->saved_data["groups"].toInt();
    const double epsilon = context->saved_data["epsilon"].toDouble();
    const double offset = context->saved_data["weight_offset"].toDouble();
    const std::array<bool, 3> wants = wanted_gradients(context, weight, bias, 1);
    const auto [dx, dweight, dbias] = formula_wanted(dout[0])
                                          ? channels_formula(dout[0], x, groups, weight, bias, epsilon, offset, wants)
                                          : backward_op().call(dout[0], x, groups, or_absent(weight), epsilon, offset,
                                                               bias.defined() ? bias.scalar_type() : wide(x), wants);
    variable_list gradients(6);
    gradients[0] = dx;
    if (wants[1]) gradients[2] = dweight;
    if (wants[2]) gradients[3] = dbias;
    return gradients;
  }
};

inline Tensor channels_autograd(const Tensor& x, int64_t groups, const OptionalTensor& weight,
                                const OptionalTensor& bias, double epsilon, double weight_offset) {
  if (records(x, weight, bias)) return ChannelsFunction::apply(x, groups, weight, bias, epsilon, weight_offset);
  const at::AutoDispatchBelowADInplaceOrView guard;
  return ChannelsFunction::op().call(x, groups, weight, bias, epsilon, weight_offset);
}

}  // namespace rmsnorm_torch

#endif  // RMSNORM_TORCH_CHANNELS_H_
