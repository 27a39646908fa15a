// LoRA adapters: the merged weights before and after, from their definition.
#include <cmath>

#include "files.h"

namespace rmsnorm::convert {
namespace {

constexpr std::size_t kRank = 2;

class Adapter : public Files {
 protected:
  void SetUp() override {
    write_model("in", tiny_gpt2_config(), tiny_gpt2());
    Tensors lora;
    add(lora, "transformer.h.0.attn.c_attn", 8, 24);
    add(lora, "transformer.h.1.mlp.c_proj", 32, 8);
    write("lora/adapter_model.safetensors", safetensors(lora));
    write_config({{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 2}, {"fan_in_fan_out", true}});
  }
  void write_config(const Json& config) const { write("lora/adapter_config.json", config.dump()); }
  static void add(Tensors& lora, const std::string& module, std::int64_t in, std::int64_t out) {
    lora["base_model.model." + module + ".lora_A.weight"] = {"F32", {kRank, in}, {}};
    lora["base_model.model." + module + ".lora_B.weight"] = {"F32", {out, kRank}, {}};
  }
  // B A, at [output][input].
  static double delta(const Tensors& lora, const std::string& module, std::size_t in, std::size_t o, std::size_t i) {
    const auto& a = lora.at("base_model.model." + module + ".lora_A.weight").values;
    const auto& b = lora.at("base_model.model." + module + ".lora_B.weight").values;
    double sum = 0;
    for (std::size_t r = 0; r < kRank; ++r) sum += b[o * kRank + r] * a[r * in + i];
    return sum;
  }
};

TEST_F(Adapter, writers_are_centred_and_readers_take_the_fold) {
  Request r = request("in", "out");
  r.adapter = path("lora");
  r.affine = Affine::kFull;
  r.target = Target::kHf;
  convert(r);
  const Tensors before = read_model("lora");
  const Tensors after = read_model("out/adapter");
  const Tensors model = read_model("in");
  const std::string writer = "transformer.h.1.mlp.c_proj";
  for (std::size_t i = 0; i < 32; ++i) {
    double mean = 0;
    for (std::size_t o = 0; o < 8; ++o) mean += delta(before, writer, 32, o, i) / 8;
    for (std::size_t o = 0; o < 8; ++o) {
      EXPECT_NEAR(delta(after, writer, 32, o, i), delta(before, writer, 32, o, i) - mean, 1e-6);
    }
  }
  const std::string reader = "transformer.h.0.attn.c_attn";
  const auto& gain = model.at("transformer.h.0.ln_1.weight").values;
  const auto& shift = model.at("transformer.h.0.ln_1.bias").values;
  const auto& bias = after.at("base_model.model." + reader + ".lora_B.bias").values;
  for (std::size_t o = 0; o < 24; ++o) {
    double wanted = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(delta(after, reader, 8, o, i), delta(before, reader, 8, o, i) * gain[i], 1e-6);
      wanted += delta(before, reader, 8, o, i) * shift[i];
    }
    EXPECT_NEAR(bias[o], wanted, 1e-6);
  }
  EXPECT_EQ(after.at("base_model.model." + writer + ".lora_B.bias").values, std::vector<double>(8, 0.0));
  EXPECT_EQ(Json::parse(read("out/adapter/adapter_config.json"))["lora_bias"], true);
}

TEST_F(Adapter, a_kept_norm_leaves_readers_alone) {
  Request r = request("in", "out");
  r.adapter = path("lora");
  convert(r);
  const Tensors before = read_model("lora");
  const Tensors after = read_model("out/adapter");
  EXPECT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : before) {
    if (name.find("c_attn") != std::string::npos || name.find("lora_A") != std::string::npos) {
      EXPECT_EQ(tensor.values, after.at(name).values) << name;
    }
  }
  EXPECT_EQ(read("out/adapter/adapter_config.json"), Json::parse(read("lora/adapter_config.json")).dump(2) + "\n");
}

TEST_F(Adapter, what_does_not_fit_is_refused) {
  Request r = request("in", "out");
  r.adapter = path("lora");
  write_config({{"peft_type", "LORA"}, {"use_dora", true}});
  expect_refusal(r, "R12", "use_dora");
  write_config({{"peft_type", "IA3"}});
  expect_refusal(r, "R12", "only LoRA adapters");
  write_config({{"peft_type", "LORA"}, {"bias", "all"}});
  expect_refusal(r, "R12", "biases of the original");
  write_config({{"peft_type", "LORA"}});
  Tensors lora;
  add(lora, "transformer.h.7.mlp.c_proj", 32, 8);
  write("lora/adapter_model.safetensors", safetensors(lora));
  expect_refusal(r, "R08", "the model has no such module");
  lora.clear();
  add(lora, "transformer.h.1.mlp.c_proj", 32, 9);
  write("lora/adapter_model.safetensors", safetensors(lora));
  expect_refusal(r, "R08", "it must be [8, rank]");
  lora.clear();
  lora["base_model.model.transformer.wte.weight"] = {"F32", {11, 8}, {}};
  write("lora/adapter_model.safetensors", safetensors(lora));
  expect_refusal(r, "R08", "no matrix A or B");
}

TEST_F(Adapter, a_folder_without_one_names_the_files_that_it_lacks) {
  Request r = request("in", "out");
  r.adapter = path("in");
  expect_refusal(r, "R14", "neither adapter_model.safetensors nor adapter_model.safetensors.index.json");
}

TEST_F(Adapter, half_of_a_pair_is_refused) {
  for (const char* missing : {".lora_A.weight", ".lora_B.weight"}) {
    Tensors lora;
    add(lora, "transformer.h.0.attn.c_attn", 8, 24);
    lora.erase("base_model.model.transformer.h.0.attn.c_attn" + std::string(missing));
    write("lora/adapter_model.safetensors", safetensors(lora));
    Request r = request("in", "out");
    r.adapter = path("lora");
    expect_refusal(r, "R08", missing);
  }
}

TEST_F(Adapter, verify_says_that_it_proves_nothing_about_it) {
  Request r = request("in", "out");
  r.adapter = path("lora");
  convert(r);
  EXPECT_NE(verify("in", "out").text.find("warning: the adapter in adapter/ is no part of the proof"),
            std::string::npos);
  convert(request("in", "plain"));
  EXPECT_EQ(verify("in", "plain").text.find("warning"), std::string::npos);
}

}  // namespace
}  // namespace rmsnorm::convert
