// Models of the lab: gradients, norms in their three codes, recomputation, adapters, oracles, messages.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "lab/models/cnn.h"
#include "lab/models/gpt2.h"
#include "lab/models/gru.h"
#include "lab/models/linear.h"
#include "lab/models/llama.h"
#include "lab/models/lora.h"
#include "lab/models/vit.h"
#include "test/lab/gradients.h"
#include "test/lab/refusal.h"

namespace rmsnorm::lab {
namespace {

using torch::Tensor;

constexpr NormKind kRowKinds[] = {NormKind::kNone, NormKind::kLayerNorm, NormKind::kRmsNorm, NormKind::kPartialRmsNorm};
constexpr NormKind kImageKinds[] = {NormKind::kNone,           NormKind::kBatchNorm,    NormKind::kGroupNorm,
                                    NormKind::kChannelRmsNorm, NormKind::kGroupRmsNorm, NormKind::kPerChannelRmsNorm};
constexpr NormCode kCodes[] = {NormCode::kFused, NormCode::kEager, NormCode::kNative};
constexpr Placement kPlacements[] = {Placement::kPre, Placement::kPost, Placement::kBoth};

bool exists(const NormOptions& norm) {
  try {
    Norm(norm, norm.groups);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

// A small model of each architecture, as a function of its norm, with an input for it.
struct Architecture {
  std::string name;
  std::function<Model(const NormOptions&)> make;
  bool images;
};

LlamaOptions small_llama(const NormOptions& norm) {
  return {.vocabulary = 11, .width = 16, .layers = 2, .heads = 4, .hidden = 24, .context = 8, .norm = norm};
}
Gpt2Options small_gpt2(const NormOptions& norm) {
  return {.vocabulary = 11, .width = 16, .layers = 2, .heads = 4, .context = 8, .norm = norm};
}
VitOptions small_vit(const NormOptions& norm) {
  return {.image = 6, .channels = 2, .patch = 3, .classes = 3, .width = 16, .layers = 2, .heads = 2, .norm = norm};
}
CnnOptions small_cnn(const NormOptions& norm) {
  return {.channels = 2, .classes = 3, .width = 4, .blocks = 1, .norms = {norm}};
}

std::vector<Architecture> architectures() {
  std::vector<Architecture> all;
  for (const Placement placement : kPlacements) {
    all.push_back({"llama " + name_of(placement),
                   [placement](const NormOptions& norm) {
                     LlamaOptions options = small_llama(norm);
                     options.placement = placement;
                     options.qk_norm = options.tied = placement == Placement::kPre;
                     return make_llama(options);
                   },
                   false});
    all.push_back({"gpt2 " + name_of(placement),
                   [placement](const NormOptions& norm) {
                     Gpt2Options options = small_gpt2(norm);
                     options.placement = placement;
                     return make_gpt2(options);
                   },
                   false});
  }
  all.push_back(
      {"gru", [](const NormOptions& norm) { return make_gru({.vocabulary = 11, .width = 8, .norm = norm}); }, false});
  all.push_back({"vit", [](const NormOptions& norm) { return make_vit(small_vit(norm)); }, true});
  all.push_back({"residual_cnn", [](const NormOptions& norm) { return make_residual_cnn(small_cnn(norm)); }, true});
  all.push_back({"conv_pool", [](const NormOptions& norm) { return make_conv_pool(small_cnn(norm)); }, true});
  return all;
}

bool convolutional(const Architecture& a) { return a.images && a.name != "vit"; }

std::vector<NormOptions> norms_of(const Architecture& a, NormCode code) {
  std::vector<NormOptions> all;
  const auto add = [&](NormKind kind) {
    const NormOptions norm = {
        .kind = kind, .code = code, .share = 0.5, .groups = 2, .threshold = kind == NormKind::kPerChannelRmsNorm};
    if (exists(norm)) all.push_back(norm);
  };
  if (convolutional(a)) {
    for (const NormKind kind : kImageKinds) add(kind);
  } else {
    for (const NormKind kind : kRowKinds) add(kind);
  }
  return all;
}

Tensor input_of(const Architecture& a) {
  const auto generator = torch::make_generator<at::CPUGeneratorImpl>(5);
  if (!a.images) return torch::randint(11, {2, 7}, generator, torch::kLong);
  const std::int64_t side = a.name == "vit" ? 6 : 12;
  return torch::randn({3, 2, side, side}, generator);
}

// With parameters away from where they start, so that no gradient is zero or symmetric by accident.
Model made(const Architecture& a, const NormOptions& norm, torch::ScalarType type) {
  torch::manual_seed(3);
  const Model model = a.make(norm);
  const torch::NoGradGuard guard;
  for (auto& parameter : model->parameters()) parameter.add_(torch::randn_like(parameter) * 0.1);
  model->to(type);
  return model;
}

Tensor typed(const Tensor& input, torch::ScalarType type) { return input.is_floating_point() ? input.to(type) : input; }

// A loss that sees every logit, each with its own factor.
Tensor loss_of(const Tensor& logits) {
  const Tensor factors = torch::sin(torch::arange(1, logits.numel() + 1, logits.options())).view_as(logits);
  return (logits * factors).sum() + logits.square().mean();
}

std::vector<Tensor> gradients_of(ModelImpl& model, const Tensor& loss) {
  model.zero_grad();
  loss.backward();
  std::vector<Tensor> gradients;
  for (const auto& parameter : model.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

double relative(const Tensor& a, const Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).to(torch::kDouble).item<double>();
}

std::vector<Architecture> transformers_of_tokens() {
  std::vector<Architecture> all = architectures();
  std::erase_if(all, [](const Architecture& a) { return a.images || a.name == "gru"; });
  all.push_back({"llama, one head for all",
                 [](const NormOptions& norm) {
                   LlamaOptions options = small_llama(norm);
                   options.key_value_heads = 1;
                   return make_llama(options);
                 },
                 false});
  return all;
}

struct Bf16 {
  Bf16() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Bf16() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

// One thread: with tensors this small a second one only waits.
struct LabModels : testing::Test {
  static void SetUpTestSuite() { torch::set_num_threads(1); }
};

TEST_F(LabModels, GradientsAgainstDifferences) {
  for (const Architecture& a : architectures()) {
    for (const NormOptions& norm : norms_of(a, NormCode::kEager)) {
      NormOptions option = norm;
      option.code = NormCode::kFused;
      if (!exists(option)) option.code = NormCode::kNative;
      const Model model = made(a, option, torch::kDouble);
      const Tensor input = typed(input_of(a), torch::kDouble);
      const double error = gradient_error([&] { return loss_of(model->forward(input)); }, model->parameters(), 1);
      EXPECT_LE(error, 1e-6) << a.name << " " << name_of(norm.kind);
    }
  }
}

TEST_F(LabModels, CodesAgree) {
  for (const Architecture& a : architectures()) {
    for (const NormOptions& norm : norms_of(a, NormCode::kEager)) {
      const Model reference = made(a, norm, torch::kDouble);
      const Tensor logits = reference->forward(typed(input_of(a), torch::kDouble));
      const auto gradients = gradients_of(*reference, loss_of(logits));
      double largest = 0;
      for (const Tensor& g : gradients) largest = std::max(largest, g.abs().max().item<double>());
      for (const auto& [type, tolerance] : {std::pair{torch::kFloat, 2e-5}, std::pair{torch::kDouble, 1e-12}}) {
        for (const NormCode code : kCodes) {
          NormOptions option = norm;
          option.code = code;
          if (!exists(option)) continue;
          const Model model = made(a, option, type);
          const Tensor found = model->forward(typed(input_of(a), type));
          ASSERT_EQ(found.scalar_type(), type);
          EXPECT_LE(relative(found.to(torch::kDouble), logits), tolerance)
              << a.name << " " << name_of(norm.kind) << " " << name_of(code) << " " << type;
          const auto found_gradients = gradients_of(*model, loss_of(found));
          double error = 0;
          for (std::size_t i = 0; i < gradients.size(); ++i) {
            error = std::max(error, (found_gradients[i] - gradients[i]).abs().max().item<double>());
          }
          EXPECT_LE(error / largest, tolerance)
              << a.name << " " << name_of(norm.kind) << " " << name_of(code) << " " << type;
        }
      }
    }
  }
}

TEST_F(LabModels, Autocast) {
  for (const Architecture& a : architectures()) {
    for (const NormCode code : kCodes) {
      for (const NormOptions& norm : norms_of(a, code)) {
        const Model model = made(a, norm, torch::kFloat);
        const Tensor expected = model->forward(input_of(a)).detach();
        Tensor logits;
        {
          const Bf16 autocast;
          logits = model->forward(input_of(a)).to(torch::kFloat);
        }
        const std::string name = a.name + " " + name_of(norm.kind) + " " + name_of(code);
        EXPECT_LE(relative(logits, expected), 0.1) << name;
        EXPECT_FALSE(torch::equal(logits, expected)) << name << ": nothing was cast";
        for (const Tensor& g : gradients_of(*model, loss_of(logits))) {
          EXPECT_EQ(g.scalar_type(), torch::kFloat) << name;
          EXPECT_TRUE(torch::isfinite(g).all().item<bool>()) << name;
        }
      }
    }
  }
}

std::size_t nodes_of(const Tensor& tensor) {
  std::set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> next = {tensor.grad_fn().get()};
  while (!next.empty()) {
    auto* node = next.back();
    next.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    for (const auto& edge : node->next_edges()) next.push_back(edge.function.get());
  }
  return seen.size();
}

TEST_F(LabModels, RecomputedGradientsAreTheSameBits) {
  for (const Placement placement : kPlacements) {
    for (const NormCode code : {NormCode::kFused, NormCode::kEager}) {
      for (const bool cast : {false, true}) {
        for (const bool adapters : {false, true}) {
          LlamaOptions options = small_llama({.kind = NormKind::kRmsNorm, .code = code});
          options.placement = placement;
          options.layers = 3;
          std::vector<Tensor> losses, gradients[2];
          std::size_t nodes[2];
          for (const bool recompute : {false, true}) {
            options.recompute = recompute;
            torch::manual_seed(3);
            const Model model = make_llama(options);
            if (adapters) {
              add_lora(*model, {}, [](const std::string& name) { return name.find("v_proj") != std::string::npos; });
              const torch::NoGradGuard guard;
              for (auto& p : model->named_parameters()) {
                if (p.key().find("lora_B") != std::string::npos) p.value().normal_();
              }
            }
            std::optional<Bf16> autocast;
            if (cast) autocast.emplace();
            const Tensor loss = loss_of(model->forward(input_of({"llama", {}, false})));
            autocast.reset();  // the backward pass stands outside, as in a training step
            nodes[recompute] = nodes_of(loss);
            loss.backward();
            losses.push_back(loss);
            for (const auto& p : model->parameters()) gradients[recompute].push_back(p.grad());
          }
          EXPECT_TRUE(torch::equal(losses[0], losses[1]));
          for (std::size_t i = 0; i < gradients[0].size(); ++i) {
            ASSERT_EQ(gradients[0][i].defined(), gradients[1][i].defined()) << i;
            if (!gradients[0][i].defined()) continue;
            EXPECT_TRUE(torch::equal(gradients[0][i], gradients[1][i]))
                << name_of(placement) << " " << name_of(code) << " " << cast << adapters << ", parameter " << i;
          }
          EXPECT_LT(nodes[1], nodes[0] / 2) << "the graph keeps what is to be recomputed";
        }
      }
    }
  }
}

TEST_F(LabModels, AdaptersStartAsTheIdentityAndTrainAlone) {
  for (const bool gpt2 : {false, true}) {
    torch::manual_seed(3);
    const Model model = gpt2 ? make_gpt2(small_gpt2({})) : make_llama(small_llama({}));
    const Tensor tokens = input_of({"", {}, false});
    const Tensor before = model->forward(tokens).detach();
    const std::int64_t trained = add_lora(*model, {.rank = 3, .alpha = 6}, [](const std::string& name) {
      return name.ends_with("q_proj") || name.ends_with("c_attn");
    });
    EXPECT_EQ(trained, 2 * 3 * (gpt2 ? 16 + 48 : 16 + 16));
    EXPECT_TRUE(torch::equal(model->forward(tokens), before));
    std::vector<Tensor> kept;
    for (const auto& p : model->parameters()) kept.push_back(p.detach().clone());
    torch::optim::SGD optimiser(model->parameters(), 10.0);
    for (int step = 0; step < 2; ++step) {  // in the first one B is zero, so A has no gradient
      optimiser.zero_grad();
      loss_of(model->forward(tokens)).backward();
      optimiser.step();
    }
    std::size_t i = 0;
    for (const auto& p : model->named_parameters()) {
      const bool adapter = p.key().find("lora_") != std::string::npos;
      EXPECT_EQ(torch::equal(p.value(), kept[i++]), !adapter) << p.key();
    }
    EXPECT_FALSE(torch::equal(model->forward(tokens), before));
  }
}

TEST_F(LabModels, AdapterIsTheProduct) {
  for (const bool transposed : {false, true}) {
    Linear layer(5, 7, LinearOptions{.bias = true, .transposed = transposed});
    layer->add_adapter(2, 0.5);
    layer->to(torch::kDouble);
    const torch::NoGradGuard guard;
    layer->lora_b.normal_();
    layer->bias.normal_();
    const Tensor x = torch::randn({3, 5}, torch::kDouble);
    const Tensor w = (transposed ? layer->weight.t() : layer->weight) + 0.5 * layer->lora_b.mm(layer->lora_a);
    EXPECT_LE(relative(layer->forward(x), x.mm(w.t()) + layer->bias), 1e-14);
  }
}

// ---- Oracles -------------------------------------------------------------------------------------------------------

// Llama written out a second time: rotation by complex numbers, attention head by head with its own softmax.
Tensor llama_oracle(const ModelImpl& model, const LlamaOptions& o, const Tensor& tokens) {
  const auto parameters = model.named_parameters();
  const auto p = [&](const std::string& name) { return *parameters.find(name); };
  const auto norm = [&](const Tensor& x, const std::string& name) {
    return x * torch::rsqrt(x.pow(2).mean(-1, true) + o.norm.epsilon) * p(name + ".weight");
  };
  const std::int64_t time = tokens.size(1), d = o.width / o.heads;
  const Tensor turns =
      torch::polar(torch::ones({time, d / 2}, torch::kDouble),
                   torch::arange(time, torch::kDouble).unsqueeze(1) *
                       torch::exp(torch::arange(d / 2, torch::kDouble) * (-2 * std::log(o.rope_theta) / d)));
  const auto rotate = [&](const Tensor& x) {  // [batch, time, d]
    const Tensor y = torch::complex(x.slice(-1, 0, d / 2), x.slice(-1, d / 2)) * turns;
    return torch::cat({torch::real(y), torch::imag(y)}, -1);
  };
  const Tensor future = torch::ones({time, time}).triu(1).to(torch::kBool);
  Tensor x = p("model.embed_tokens.weight").index({tokens});
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    const auto project = [&](const Tensor& h, const std::string& name) {
      return h.matmul(p(at + name + ".weight").t());
    };
    Tensor h = norm(x, at + "input_layernorm");
    std::vector<Tensor> heads;
    for (std::int64_t i = 0; i < o.heads; ++i) {
      const std::int64_t j = i / (o.heads / o.key_value_heads);
      Tensor q = project(h, "self_attn.q_proj").slice(-1, i * d, (i + 1) * d);
      Tensor k = project(h, "self_attn.k_proj").slice(-1, j * d, (j + 1) * d);
      const Tensor v = project(h, "self_attn.v_proj").slice(-1, j * d, (j + 1) * d);
      if (o.qk_norm) {
        q = norm(q, at + "self_attn.q_norm");
        k = norm(k, at + "self_attn.k_norm");
      }
      const Tensor scores = rotate(q).matmul(rotate(k).transpose(1, 2)) / std::sqrt(static_cast<double>(d));
      heads.push_back(torch::softmax(scores.masked_fill(future, -INFINITY), -1).matmul(v));
    }
    x = x + project(torch::cat(heads, -1), "self_attn.o_proj");
    h = norm(x, at + "post_attention_layernorm");
    const Tensor gate = project(h, "mlp.gate_proj");
    x = x + project(gate * torch::sigmoid(gate) * project(h, "mlp.up_proj"), "mlp.down_proj");
  }
  x = norm(x, "model.norm");
  return x.matmul(p(o.tied ? "model.embed_tokens.weight" : "lm_head.weight").t());
}

TEST_F(LabModels, LlamaIsItsFormula) {
  for (const bool tied : {false, true}) {
    LlamaOptions options = small_llama({});
    options.tied = tied;
    options.qk_norm = !tied;
    const Architecture a = {"llama", [&](const NormOptions&) { return make_llama(options); }, false};
    const Model model = made(a, {}, torch::kDouble);
    // The model's angles are f32, at most 6 radians here: 6 * 2^-24 of an error.
    EXPECT_LE(relative(model->forward(input_of(a)), llama_oracle(*model, options, input_of(a))), 1e-6);
  }
}

TEST_F(LabModels, GruWithoutNormIsPyTorchs) {
  const Architecture a = {
      "gru", [](const NormOptions& n) { return make_gru({.vocabulary = 11, .width = 8, .norm = n}); }, false};
  const Model model = made(a, {.kind = NormKind::kNone}, torch::kDouble);
  const auto parameters = model->named_parameters();
  torch::nn::GRU gru(torch::nn::GRUOptions(8, 8).batch_first(true));
  gru->to(torch::kDouble);
  const torch::NoGradGuard guard;
  gru->named_parameters()["weight_ih_l0"].copy_(parameters["input.weight"]);
  gru->named_parameters()["weight_hh_l0"].copy_(parameters["hidden.weight"]);
  gru->named_parameters()["bias_ih_l0"].copy_(parameters["bias"]);
  gru->named_parameters()["bias_hh_l0"].zero_();
  const Tensor states = std::get<0>(gru->forward(parameters["embedding.weight"].index({input_of(a)})));
  const Tensor expected = torch::linear(states, parameters["output.weight"], parameters["output.bias"]);
  EXPECT_LE(relative(model->forward(input_of(a)), expected), 1e-12);
}

TEST_F(LabModels, LaterTokensChangeNothingBefore) {
  for (const Architecture& a : architectures()) {
    if (a.images) continue;
    const Model model = made(a, {}, torch::kFloat);
    Tensor tokens = input_of(a);
    const Tensor before = model->forward(tokens);
    tokens.select(1, 5).copy_((tokens.select(1, 5) + 1).remainder(11));
    const Tensor after = model->forward(tokens);
    EXPECT_TRUE(torch::equal(before.slice(1, 0, 5), after.slice(1, 0, 5))) << a.name;
    EXPECT_FALSE(torch::equal(before.slice(1, 5), after.slice(1, 5))) << a.name;
  }
}

// ---- Names, initial values, messages -------------------------------------------------------------------------------

std::vector<std::string> names_of(const ModelImpl& model) {
  std::vector<std::string> names;
  for (const auto& p : model.named_parameters()) names.push_back(p.key());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_F(LabModels, NamesAreThoseOfTransformers) {
  LlamaOptions llama = small_llama({});
  llama.layers = 1;
  llama.tied = false;
  EXPECT_EQ(
      names_of(*make_llama(llama)),
      (std::vector<std::string>{"lm_head.weight", "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                                "model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.gate_proj.weight",
                                "model.layers.0.mlp.up_proj.weight", "model.layers.0.post_attention_layernorm.weight",
                                "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                                "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                                "model.norm.weight"}));
  Gpt2Options gpt2 = small_gpt2({.kind = NormKind::kLayerNorm});
  gpt2.layers = 1;
  EXPECT_EQ(
      names_of(*make_gpt2(gpt2)),
      (std::vector<std::string>{
          "transformer.h.0.attn.c_attn.bias", "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_proj.bias",
          "transformer.h.0.attn.c_proj.weight", "transformer.h.0.ln_1.bias", "transformer.h.0.ln_1.weight",
          "transformer.h.0.ln_2.bias", "transformer.h.0.ln_2.weight", "transformer.h.0.mlp.c_fc.bias",
          "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_proj.bias", "transformer.h.0.mlp.c_proj.weight",
          "transformer.ln_f.bias", "transformer.ln_f.weight", "transformer.wpe.weight", "transformer.wte.weight"}));
  VitOptions vit = small_vit({.kind = NormKind::kLayerNorm});
  vit.layers = 1;
  EXPECT_EQ(names_of(*make_vit(vit)), (std::vector<std::string>{"classifier.bias",
                                                                "classifier.weight",
                                                                "vit.embeddings.cls_token",
                                                                "vit.embeddings.patch_embeddings.projection.bias",
                                                                "vit.embeddings.patch_embeddings.projection.weight",
                                                                "vit.embeddings.position_embeddings",
                                                                "vit.encoder.layer.0.attention.attention.key.bias",
                                                                "vit.encoder.layer.0.attention.attention.key.weight",
                                                                "vit.encoder.layer.0.attention.attention.query.bias",
                                                                "vit.encoder.layer.0.attention.attention.query.weight",
                                                                "vit.encoder.layer.0.attention.attention.value.bias",
                                                                "vit.encoder.layer.0.attention.attention.value.weight",
                                                                "vit.encoder.layer.0.attention.output.dense.bias",
                                                                "vit.encoder.layer.0.attention.output.dense.weight",
                                                                "vit.encoder.layer.0.intermediate.dense.bias",
                                                                "vit.encoder.layer.0.intermediate.dense.weight",
                                                                "vit.encoder.layer.0.layernorm_after.bias",
                                                                "vit.encoder.layer.0.layernorm_after.weight",
                                                                "vit.encoder.layer.0.layernorm_before.bias",
                                                                "vit.encoder.layer.0.layernorm_before.weight",
                                                                "vit.encoder.layer.0.output.dense.bias",
                                                                "vit.encoder.layer.0.output.dense.weight",
                                                                "vit.layernorm.bias",
                                                                "vit.layernorm.weight"}));
}

TEST_F(LabModels, NormsInTheOrderOfTheForwardPass) {
  LlamaOptions options = small_llama({});
  options.layers = 1;
  options.placement = Placement::kBoth;
  std::vector<std::string> names;
  const Model model = make_llama(options);
  for (const auto& [name, norm] : model->norms()) {
    EXPECT_EQ(norm->weight.numel(), 16) << name;
    names.push_back(name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm",
                                      "model.layers.0.pre_feedforward_layernorm",
                                      "model.layers.0.post_feedforward_layernorm", "model.norm"}));
}

TEST_F(LabModels, InitialValues) {
  torch::manual_seed(1);
  const Model model = make_llama({.layers = 8});
  const auto deviation = [&](const char* name) { return model->named_parameters()[name].std().item<double>(); };
  EXPECT_NEAR(deviation("model.embed_tokens.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("model.layers.3.self_attn.q_proj.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("model.layers.3.self_attn.o_proj.weight"), 0.005, 0.0003);
  EXPECT_NEAR(deviation("model.layers.3.mlp.down_proj.weight"), 0.005, 0.0003);
  EXPECT_EQ(model->named_parameters()["model.layers.3.mlp.up_proj.weight"].size(0), 352);  // 8/3 of 128, up to 32s
  // Embedding, then of each layer q and o, k and v, the three of SwiGLU, two norms; the last norm.
  EXPECT_EQ(model->parameter_count(), 256 * 128 + 8 * (2 * 128 * 128 + 2 * 64 * 128 + 3 * 352 * 128 + 2 * 128) + 128);
  torch::manual_seed(1);
  const Model twin = make_llama({.layers = 8, .norm = {.kind = NormKind::kLayerNorm}});
  EXPECT_TRUE(torch::equal(twin->named_parameters()["model.layers.7.mlp.up_proj.weight"],
                           model->named_parameters()["model.layers.7.mlp.up_proj.weight"]))
      << "models that differ in their norm alone begin with the same matrices";
}

TEST_F(LabModels, Messages) {
  expect_refusal([] { make_llama({.width = 100, .heads = 3}); },
                 "width is 100; it must be a multiple of twice the heads");
  expect_refusal([] { make_llama({.heads = 4, .key_value_heads = 3}); }, "key_value_heads is 3; it must be a divisor");
  expect_refusal([] { make_gpt2({.layers = 0}); }, "layers is 0; it must be at least 1");
  expect_refusal([] { make_vit({.image = 28, .patch = 5}); }, "image is 28; it must be a multiple of the patch, 5");
  expect_refusal([] { make_residual_cnn({.norms = {{}, {}}}); }, "number of norms is 2; it must be 1 or 3");
  const Model llama = make_llama(small_llama({}));
  expect_refusal(
      [&] {
        llama->forward(torch::zeros({1, 9}, torch::kLong));
      },
      "time is 9; it must be at most the context, 8");
  expect_refusal(
      [&] {
        llama->forward(torch::full({1, 3}, 11, torch::kLong));
      },
      "token is 11; it must be from 0 to 10");
  expect_refusal(
      [&] {
        llama->forward(torch::full({1, 3}, -1, torch::kLong));
      },
      "token is -1; it must be from 0 to 10");
  expect_refusal([&] { llama->forward(torch::zeros({3})); }, "input is Float [3]; it must be tokens [batch, time]");
  expect_refusal([] { make_vit({})->forward(torch::zeros({1, 1, 28, 27})); }, "width is 27; it must be 28");
  expect_refusal(
      [] {
        make_residual_cnn({})->forward(torch::zeros({1, 3, 28, 28}));
      },
      "input is Float [1, 3, 28, 28]; it must be images [batch, 1, height, width]");
  expect_refusal(
      [] {
        make_conv_pool({})->forward(torch::zeros({1, 1, 8, 8}));
      },
      "side of an image is 8; it must be at");
  expect_refusal([&] { add_lora(*llama, {}, [](const std::string&) { return false; }); }, "no linear layer is chosen");
  expect_refusal([&] { add_lora(*llama, {.rank = 0}, [](const std::string&) { return true; }); },
                 "rank of an adapter is 0");
  expect_refusal([] { placement("after"); }, "placement is \"after\"; it must be one of pre, post, both");
  expect_refusal([] { Linear(4, 4)->forward(torch::zeros({2, 5})); }, "input is 5; it must be 4");
}

// ---- Keys and values that are kept

// One by one, and in parts of every size: the logits are those of the whole, to what f64 rounds.
TEST(KeyValueCache, LogitsAreThoseOfTheWholeText) {
  for (const Architecture& a : transformers_of_tokens()) {
    for (const NormOptions& norm : norms_of(a, NormCode::kFused)) {
      const Model model = made(a, norm, torch::kDouble);
      const Tensor tokens = input_of(a), whole = model->forward(tokens);
      const std::int64_t time = tokens.size(1);
      for (std::int64_t part = 1; part <= time; ++part) {
        KeyValueCache cache;
        std::vector<Tensor> logits;
        for (std::int64_t at = 0; at < time; at += part) {
          logits.push_back(model->forward_cached(tokens.slice(1, at, at + part), cache));
          EXPECT_FALSE(logits.back().requires_grad());
        }
        EXPECT_EQ(cache.length, time);
        EXPECT_LT(relative(torch::cat(logits, 1), whole), 1e-13) << a.name << ", parts of " << part;
      }
    }
  }
}

TEST(KeyValueCache, ForgetsTheLastTokens) {
  for (const Architecture& a : transformers_of_tokens()) {
    const Model model = made(a, {}, torch::kDouble);
    const Tensor tokens = input_of(a);
    KeyValueCache cache;
    model->forward_cached(tokens, cache);
    cache.length = 3;
    const Tensor others = tokens.slice(1, 3).flip(1);
    const Tensor whole = model->forward(torch::cat({tokens.slice(1, 0, 3), others}, 1)).slice(1, 3);
    EXPECT_LT(relative(model->forward_cached(others, cache), whole), 1e-13) << a.name;
  }
}

TEST(KeyValueCache, HasRoomForTheContext) {
  for (const Architecture& a : transformers_of_tokens()) {
    const Model model = made(a, {}, torch::kFloat);
    KeyValueCache cache;
    model->forward_cached(input_of(a), cache);                 // 7
    model->forward_cached(input_of(a).slice(1, 0, 1), cache);  // 8, the context
    expect_refusal([&] { model->forward_cached(input_of(a).slice(1, 0, 1), cache); },
                   "time is 9; it must be at most the context, 8");
    EXPECT_EQ(cache.length, 8);
  }
}

TEST(KeyValueCache, OtherModelsHaveNone) {
  KeyValueCache cache;
  const Model model = make_gru({.vocabulary = 11, .width = 8});
  EXPECT_THROW(model->forward_cached(torch::zeros({1, 1}, torch::kLong), cache), std::logic_error);
}

}  // namespace
}  // namespace rmsnorm::lab
