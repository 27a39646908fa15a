// Known bugs, written into a converted checkpoint: verify must see each.
#include <cmath>
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

// What the program beside the checkpoint reads, key by key.
TEST_F(Verify, what_the_program_is_told) {
  const auto expect_key = [&](const std::string& text, const auto& change) {
    mutate([](Tensors&) {});
    Json told = Json::parse(read("mutant/rmsnorm.json"));
    change(told);
    write("mutant/rmsnorm.json", told.dump());
    expect_difference("in", "mutant", text);
  };
  expect_key("sites.0.gain is", [](Json& told) { told["sites"][0]["gain"] = "one_plus_weight"; });
  expect_key("sites.1.folded is", [](Json& told) { told["sites"][1]["folded"] = "full"; });
  expect_key("sites is", [](Json& told) { told["sites"].push_back(told["sites"][0]); });
  expect_key("entry is", [](Json& told) {
    told["entry"].push_back({{"stream", "decoder"}, {"module", {"h.0.mlp.c_fc"}}, {"side", "input"}});
  });
  expect_key("biases is", [](Json& told) { told["biases"].push_back({"lm_head"}); });
  expect_key("format is", [](Json& told) { told["format"] = 2; });
  expect_key("architectures.0 is", [](Json& told) { told["architectures"][0] = "BertModel"; });
  expect_key("operations.affine is", [](Json& told) { told["operations"]["affine"] = "some"; });
  expect_key("operations.untied is missing", [](Json& told) { told["operations"].erase("untied"); });
  expect_key("folded is", [](Json& told) { told["operations"]["affine"] = "bias"; });
}

TEST_F(Verify, where_the_program_centres) {
  Request by_op = request("in", "op");
  by_op.entry = Entry::kOp;
  convert(by_op);
  verify("in", "op");
  Json told = Json::parse(read("op/rmsnorm.json"));
  told["entry"][0]["side"] = "output";
  write("op/rmsnorm.json", told.dump());
  expect_difference("in", "op", "entry.0.side is");
  told["entry"][0]["side"] = "input";
  told["entry"][0]["module"][0] = "h.1";
  write("op/rmsnorm.json", told.dump());
  expect_difference("in", "op", "entry.0.module.0 is");
}

TEST_F(Verify, another_program_under_its_name) {
  mutate([](Tensors&) {});
  write("mutant/modeling_rmsnorm.py", read("out/modeling_rmsnorm.py") + "# more\n");
  expect_difference("in", "mutant", "modeling_rmsnorm.py is not the program");
  std::filesystem::remove(path("mutant/modeling_rmsnorm.py"));
  expect_difference("in", "mutant", "modeling_rmsnorm.py is missing");
}

TEST_F(Verify, flags_of_the_configuration) {
  Json config = tiny_gpt2_config();
  config["attn_pdrop"] = 0.1;
  config["task"] = {{"deep", true}};
  write("in/config.json", config.dump());
  std::filesystem::remove_all(path("out"));
  convert(request("in", "out"));
  const auto expect_key = [&](const std::string& text, const auto& change) {
    mutate([](Tensors&) {});
    Json now = Json::parse(read("mutant/config.json"));
    change(now);
    write("mutant/config.json", now.dump());
    expect_difference("in", "mutant", text);
  };
  expect_key("attn_pdrop is missing", [](Json& now) { now.erase("attn_pdrop"); });
  expect_key("task.deep is", [](Json& now) { now["task"]["deep"] = false; });
  expect_key("auto_map.AutoModel is", [](Json& now) { now["auto_map"]["AutoModel"] = "other.Model"; });
  expect_key("tie_word_embeddings is missing", [](Json& now) { now.erase("tie_word_embeddings"); });
  expect_key("tie_word_embeddings is", [](Json& now) { now["tie_word_embeddings"] = true; });
  expect_key("model_type is", [](Json& now) { now["model_type"] = "llama"; });
}

// A class that is told to make biases must be told still.
TEST_F(Verify, a_flag_that_biases_hang_on) {
  Json config = {{"architectures", {"OlmoForCausalLM"}},
                 {"model_type", "olmo"},
                 {"hidden_size", 8},
                 {"num_hidden_layers", 1},
                 {"attention_bias", false},
                 {"tie_word_embeddings", false}};
  Tensors tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    tensors["model.layers.0." + name + ".weight"] = {"F32", std::move(shape), {}};
  };
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"})
    add(name, {8, 8});
  add("mlp.gate_proj", {16, 8});
  add("mlp.up_proj", {16, 8});
  add("mlp.down_proj", {8, 16});
  tensors["model.embed_tokens.weight"] = {"F32", {11, 8}, {}};
  tensors["lm_head.weight"] = {"F32", {11, 8}, {}};
  write_model("olmo", config, tensors);
  convert(request("olmo", "olmo-out"));
  verify("olmo", "olmo-out");
  Json now = Json::parse(read("olmo-out/config.json"));
  now["attention_bias"] = true;
  write("olmo-out/config.json", now.dump());
  expect_difference("olmo", "olmo-out", "attention_bias is");
}

// The smallest change that is no rounding: two units in the last place of one element.
TEST_F(Verify, single_elements) {
  const auto expect_element = [&](const char* in, const std::string& name, double unit) {
    mutate([&](Tensors& t) {
      double& value = t.at(name).values[3];
      value += 2 * unit * std::exp2(std::ilogb(value));
    });
    expect_difference(in, "mutant", name.substr(0, name.rfind('.')));
  };
  const std::vector<std::string> kept = {"transformer.h.0.ln_1.bias",        "transformer.h.0.ln_1.weight",
                                         "transformer.h.0.attn.c_attn.bias", "transformer.h.0.mlp.c_fc.weight",
                                         "transformer.ln_f.weight",          "lm_head.weight"};
  const std::vector<std::string> centred = {"transformer.wte.weight", "transformer.h.1.mlp.c_proj.bias",
                                            "transformer.h.1.mlp.c_proj.weight"};
  for (const std::string& name : kept) expect_element("in", name, 0x1p-23);
  for (const std::string& name : centred) expect_element("in", name, 0x1p-23);
  write_model("half", tiny_gpt2_config(), tiny_gpt2("F16"));
  std::filesystem::remove_all(path("out"));
  convert(request("half", "out"));
  for (const std::string& name : kept) expect_element("half", name, 0x1p-10);
  for (const std::string& name : centred) expect_element("half", name, 0x1p-10);
}

TEST_F(Verify, single_elements_of_folded_readers) {
  for (const char* dtype : {"F32", "BF16"}) {
    write_model("source", tiny_gpt2_config(), tiny_gpt2(dtype));
    std::filesystem::remove_all(path("out"));
    Request full = request("source", "out");
    full.affine = Affine::kFull;
    full.target = Target::kHf;
    convert(full);
    verify("source", "out");
    const double unit = std::string(dtype) == "F32" ? 0x1p-23 : 0x1p-7;
    for (const char* name : {"transformer.h.1.attn.c_attn.weight", "transformer.h.1.attn.c_attn.bias", "lm_head.weight",
                             "lm_head.bias", "transformer.h.0.ln_1.bias", "transformer.ln_f.weight"}) {
      mutate([&](Tensors& t) {
        double& value = t.at(name).values[2];
        value += value == 0 ? unit : 2 * unit * std::exp2(std::ilogb(value));
      });
      expect_difference("source", "mutant", std::string(name).substr(0, std::string(name).rfind('.')));
    }
    std::filesystem::remove_all(path("source"));
  }
}

// Each element is one rounding of the exact one and what those before it lost, or of the exact one alone: which of the
// two, rmsnorm.json says, and the elements must bear it out.
TEST_F(Verify, carried_rounding) {
  write_model("half", tiny_gpt2_config(), tiny_gpt2("BF16"));
  Request carried = request("half", "carried");
  carried.carry_rounding = true;
  convert(carried);
  verify("half", "carried");
  Json told = Json::parse(read("carried/rmsnorm.json"));
  told["operations"]["carry_rounding"] = false;
  write("carried/rmsnorm.json", told.dump());
  expect_difference("half", "carried", "what rounding may cause");
  Request plain = request("half", "plain");
  convert(plain);
  verify("half", "plain");
  told = Json::parse(read("plain/rmsnorm.json"));
  told["operations"]["carry_rounding"] = true;
  write("plain/rmsnorm.json", told.dump());
  expect_difference("half", "plain", "what rounding may cause");
}

// One unit in one element, which a carried error could explain, is seen in what follows it.
TEST_F(Verify, carried_rounding_is_followed) {
  write_model("half", tiny_gpt2_config(), tiny_gpt2("BF16"));
  Request carried = request("half", "carried");
  carried.carry_rounding = true;
  convert(carried);
  const Tensors right = read_model("carried");
  for (const char* name :
       {"transformer.wte.weight", "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias"}) {
    Tensors wrong = right;
    double& value = wrong.at(name).values[2];
    ASSERT_NE(value, 0);
    value += 0x1p-7 * std::exp2(std::ilogb(value));
    write_model("mutant", Json::parse(read("carried/config.json")), wrong);
    for (const char* beside : {"config.json", "rmsnorm.json", "modeling_rmsnorm.py"}) {
      write(std::string("mutant/") + beside, read(std::string("carried/") + beside));
    }
    expect_difference("half", "mutant", std::string(name).substr(0, std::string(name).rfind('.')));
    std::filesystem::remove_all(path("mutant"));
  }
}

TEST_F(Verify, shapes_and_types) {
  const auto expect_shape = [&](const std::string& name, std::vector<std::int64_t> shape, const std::string& dtype) {
    mutate([&](Tensors& t) {
      t.at(name).shape = shape;
      t.at(name).dtype = dtype;
    });
    expect_difference("in", "mutant", name);
  };
  expect_shape("transformer.h.0.mlp.c_proj.bias", {1, 8}, "F32");
  expect_shape("transformer.h.0.ln_1.weight", {8, 1}, "F32");
  expect_shape("transformer.wpe.weight", {5, 1, 8}, "F32");
  expect_shape("transformer.h.0.attn.c_attn.bias", {3, 8}, "F32");
  expect_shape("transformer.h.0.mlp.c_proj.weight", {32, 8}, "F64");
  expect_shape("transformer.h.0.ln_1.weight", {8}, "F64");
  std::filesystem::remove_all(path("out"));
  Request narrow = request("in", "out");
  narrow.type = RN_BF16;
  convert(narrow);
  verify("in", "out");
  expect_shape("transformer.h.0.mlp.c_proj.weight", {32, 8}, "F32");
}

}  // namespace
}  // namespace rmsnorm::convert
