#include "lab/train/sharded_norm.h"

#include "python/rmsnorm/torch/csrc/tensors.h"
#include "tools/error.h"

namespace rmsnorm::lab {

namespace {

using rmsnorm_torch::execution;
using rmsnorm_torch::run;
using rmsnorm_torch::view;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Call : torch::CustomClassHolder {
  double epsilon = 0;
  std::int64_t width = 0;
  Ranks* ranks = nullptr;
};

const Call& call_of(AutogradContext* context) {
  return *c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
}

// One f64 number a row; `count` of them side by side travel in one round.
Tensor numbers(const Tensor& x, std::int64_t count) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = count;
  return torch::empty(shape, torch::kFloat64);
}

class ShardedRmsNorm : public torch::autograd::Function<ShardedRmsNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        const c10::intrusive_ptr<Call>& call) {
    const Tensor x = input.contiguous();
    const Tensor mine = numbers(x, 1);
    run([&] { rms_sum_squares(view(mine.select(-1, 0)), view(x), execution()); });
    const Tensor squares = call->ranks->sum(mine, Cargo::kNorms);
    const Tensor out = torch::empty_like(x);
    RmsNormOptions options;
    options.epsilon = call->epsilon;
    run([&] {
      rms_norm_apply(view(out), {}, view(x), view(squares.select(-1, 0)), call->width, view(weight), {}, options,
                     execution());
    });
    context->save_for_backward({x, weight, squares});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Call& call = call_of(context);
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &squares = saved[2];
    const Tensor dy = gradients[0].contiguous();
    const Tensor mine = numbers(x, 1);
    run([&] { rms_backward_sum(view(mine.select(-1, 0)), view(dy), view(x), view(weight), 0, execution()); });
    const Tensor products = call.ranks->sum(mine, Cargo::kNorms);
    const Tensor dx = torch::empty_like(x), dweight = torch::empty_like(weight);
    RmsNormBackwardOptions options;
    options.epsilon = call.epsilon;
    run([&] {
      rms_norm_backward_apply(view(dx), view(dweight), {}, view(dy), view(x), view(squares.select(-1, 0)),
                              view(products.select(-1, 0)), call.width, view(weight), options, execution());
    });
    return {dx, dweight, Tensor()};
  }
};

class ShardedLayerNorm : public torch::autograd::Function<ShardedLayerNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const c10::intrusive_ptr<Call>& call) {
    const Tensor x = input.contiguous();
    const Tensor mine = numbers(x, 1);
    run([&] { layer_sum(view(mine.select(-1, 0)), view(x), execution()); });
    const Tensor sums = call->ranks->sum(mine, Cargo::kNorms);
    run([&] {
      layer_sum_squares(view(mine.select(-1, 0)), view(x), view(sums.select(-1, 0)), call->width, execution());
    });
    const Tensor squares = call->ranks->sum(mine, Cargo::kNorms);
    const Tensor out = torch::empty_like(x);
    LayerNormOptions options;
    options.epsilon = call->epsilon;
    run([&] {
      layer_norm_apply(view(out), {}, {}, view(x), view(sums.select(-1, 0)), view(squares.select(-1, 0)), call->width,
                       view(weight), view(bias), options, execution());
    });
    context->save_for_backward({x, weight, bias, sums, squares});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Call& call = call_of(context);
    const variable_list saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    const Tensor sum = saved[3].select(-1, 0), squares = saved[4].select(-1, 0);
    const Tensor dy = gradients[0].contiguous();
    const Tensor mine = numbers(x, 2);
    run([&] {
      layer_backward_sums(view(mine.select(-1, 0)), view(mine.select(-1, 1)), view(dy), view(x), view(sum), call.width,
                          view(weight), 0, execution());
    });
    const Tensor totals = call.ranks->sum(mine, Cargo::kNorms);
    const Tensor dx = torch::empty_like(x), dweight = torch::empty_like(weight), dbias = torch::empty_like(bias);
    LayerNormBackwardOptions options;
    options.epsilon = call.epsilon;
    run([&] {
      layer_norm_backward_apply(view(dx), view(dweight), view(dbias), view(dy), view(x), view(sum), view(squares),
                                view(totals.select(-1, 0)), view(totals.select(-1, 1)), call.width, view(weight),
                                options, execution());
    });
    return {dx, dweight, dbias, Tensor()};
  }
};

}  // namespace

ShardedNormImpl::ShardedNormImpl(const NormOptions& options, const Slice& slice, Ranks& ranks)
    : options_(options), width_(slice.width), ranks_(ranks) {
  const bool layer = options.kind == NormKind::kLayerNorm;
  if ((!layer && options.kind != NormKind::kRmsNorm) || options.code != NormCode::kFused || !options.epsilon_inside ||
      !options.weight || (layer && !options.bias)) {
    tools::fail(tools::ExitCode::kUsage,
                "the sharded norm is {} {}; it must be rms_norm or layer_norm, fused, with epsilon inside the root and "
                "with its parameters",
                name_of(options.code), name_of(options.kind));
  }
  weight = register_parameter("weight", torch::ones({slice.size()}));
  if (layer) bias = register_parameter("bias", torch::zeros({slice.size()}));
}

torch::Tensor ShardedNormImpl::forward(const torch::Tensor& x) {
  auto call = c10::make_intrusive<Call>();
  call->epsilon = options_.epsilon;
  call->width = width_;
  call->ranks = &ranks_;
  return options_.kind == NormKind::kLayerNorm ? ShardedLayerNorm::apply(x, weight, bias, call)
                                               : ShardedRmsNorm::apply(x, weight, call);
}

}  // namespace rmsnorm::lab
