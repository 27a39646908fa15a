// Known bugs, written into a converted checkpoint: verify must see each.
#include <filesystem>

#include "files.h"

namespace rmsnorm::convert {
namespace {

class Verify : public Files {
 protected:
  void SetUp() override {
    write_model("in", tiny_gpt2_config(), tiny_gpt2());
    convert(request("in", "out"));
  }

  // The converted model with something changed, written again.
  template <class Change>
  void mutate(const Change& change) {
    Tensors tensors = read_model("out");
    for (auto& [name, tensor] : tensors) {
      if (tensor.values.empty()) tensor.values.assign(1, 0.0);  // mask buffers: zeros, as they were
    }
    change(tensors);
    std::filesystem::remove_all(path("mutant"));
    std::filesystem::copy(path("out"), path("mutant"));
    write("mutant/model.safetensors", safetensors(tensors));
  }
  void change_json(const std::string& file, const std::string& key, const Json& value) {
    Json json = Json::parse(read("mutant/" + file));
    json[key] = value;
    write("mutant/" + file, json.dump());
  }
};

TEST_F(Verify, the_rewritten_file_itself_passes) {
  mutate([](Tensors&) {});
  verify("in", "mutant");
}

TEST_F(Verify, one_bias_not_centred) {
  const Tensors before = read_model("in");
  mutate([&](Tensors& t) { t["transformer.h.1.mlp.c_proj.bias"] = before.at("transformer.h.1.mlp.c_proj.bias"); });
  expect_difference("in", "mutant", "h.1.mlp.c_proj");
}

TEST_F(Verify, position_table_skipped) {
  const Tensors before = read_model("in");
  mutate([&](Tensors& t) { t["transformer.wpe.weight"] = before.at("transformer.wpe.weight"); });
  expect_difference("in", "mutant", "wpe");
}

TEST_F(Verify, wrong_axis) {
  const Tensors before = read_model("in");
  mutate([&](Tensors& t) {  // [8, 8]: both axes fit
    auto& w = t["transformer.h.0.attn.c_proj.weight"].values;
    w = before.at("transformer.h.0.attn.c_proj.weight").values;
    for (std::size_t c = 0; c < 8; ++c) {
      double mean = 0;
      for (std::size_t r = 0; r < 8; ++r) mean += w[r * 8 + c] / 8;
      for (std::size_t r = 0; r < 8; ++r) w[r * 8 + c] -= mean;
    }
  });
  expect_difference("in", "mutant", "h.0.attn.c_proj");
}

TEST_F(Verify, tied_head_left) {
  mutate([](Tensors& t) { t.erase("lm_head.weight"); });
  change_json("config.json", "tie_word_embeddings", true);
  expect_difference("in", "mutant", "wte");
}

TEST_F(Verify, epsilon_changed) {
  mutate([](Tensors&) {});
  change_json("config.json", "layer_norm_epsilon", 1e-6);
  expect_difference("in", "mutant", "epsilon is 1e-06; it was 1e-05");
}

TEST_F(Verify, epsilon_told_to_programs_changed) {
  mutate([](Tensors&) {});
  Json sites = Json::parse(read("mutant/rmsnorm.json"))["sites"];
  sites[2]["epsilon"] = 1e-6;
  change_json("rmsnorm.json", "sites", sites);
  expect_difference("in", "mutant", "the site of");
}

TEST_F(Verify, final_bias_dropped) {
  mutate([](Tensors& t) { t["transformer.ln_f.bias"].values.assign(8, 0.0); });
  expect_difference("in", "mutant", "reader lm_head.weight");
}

TEST_F(Verify, one_plus_weight_for_weight) {
  mutate([](Tensors& t) {
    for (double& w : t["transformer.h.0.ln_2.weight"].values) w -= 1;
  });
  expect_difference("in", "mutant", "reader transformer.h.0.mlp.c_fc.weight");
}

TEST_F(Verify, mask_buffer_taken_for_a_bias) {
  mutate([](Tensors& t) { t["transformer.h.0.attn.bias"] = {"F32", {1, 1, 5, 5}, {}}; });
  expect_difference("in", "mutant", "transformer.h.0.attn.bias");
}

TEST_F(Verify, nothing_centred) {
  const Tensors before = read_model("in");
  mutate([&](Tensors& t) {
    for (auto& [name, tensor] : t) {
      if (before.contains(name) && !tensor.dtype.starts_with("U")) tensor = before.at(name);
    }
  });
  expect_difference("in", "mutant", "wpe");
}

TEST_F(Verify, tensors_that_should_not_be_there_or_are_missing) {
  mutate([](Tensors& t) { t["transformer.h.0.new.weight"] = {"F32", {8}, {}}; });
  expect_difference("in", "mutant", "nothing asks for it");
  mutate([](Tensors& t) { t.erase("transformer.h.0.attn.bias"); });
  expect_difference("in", "mutant", "it is missing");
}

TEST_F(Verify, a_reader_touched_though_nothing_was_folded) {
  mutate([](Tensors& t) { t["transformer.h.0.attn.c_attn.weight"].values[5] += 1e-4; });
  expect_difference("in", "mutant", "h.0.attn.c_attn");
}

TEST_F(Verify, other_keys_of_the_configuration) {
  mutate([](Tensors&) {});
  change_json("config.json", "activation_function", "relu");
  expect_difference("in", "mutant", "activation_function is new");
}

TEST_F(Verify, an_operation_that_the_program_is_not_told) {
  Request by_op = request("in", "op");
  by_op.entry = Entry::kOp;
  convert(by_op);
  Json told = Json::parse(read("op/rmsnorm.json"));
  told["entry"] = Json::array();
  write("op/rmsnorm.json", told.dump());
  expect_difference("in", "op", "writer transformer.wte.weight");
}

// Readers of a folded model, each with one value changed by a little more than rounding.
TEST_F(Verify, a_fold_that_is_a_little_off) {
  Request full = request("in", "full");
  full.affine = Affine::kFull;
  full.target = Target::kHf;
  convert(full);
  std::filesystem::rename(path("out"), path("kept"));
  std::filesystem::rename(path("full"), path("out"));
  mutate([](Tensors& t) {
    for (double& w : t["transformer.h.1.attn.c_attn.weight"].values) w *= 1 + 1e-5;
  });
  expect_difference("in", "mutant", "reader transformer.h.1.attn.c_attn.weight");
}

}  // namespace
}  // namespace rmsnorm::convert
