// What convert writes, on a small GPT-2: the definitions recomputed here, and every refusal that it can meet.
#include <cmath>
#include <filesystem>

#include "files.h"

namespace rmsnorm::convert {
namespace {

double mean_of(const std::vector<double>& values, std::size_t begin, std::size_t count) {
  double sum = 0;
  for (std::size_t i = begin; i < begin + count; ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

std::string with_key(const Json& config, const std::string& key, const Json& value) {
  Json changed = config;
  changed[key] = value;
  return changed.dump();
}

class Convert : public Files {
 protected:
  void SetUp() override { write_model("in", tiny_gpt2_config(), tiny_gpt2()); }
};

TEST_F(Convert, writers_are_centred_and_all_else_stays) {
  write("in/tokenizer.json", "{}");
  const Report report = convert(request("in", "out"));
  const Tensors before = read_model("in");
  const Tensors after = read_model("out");
  EXPECT_EQ(after.size(), before.size() + 1);  // the head
  for (const auto& [name, now] : after) {
    const std::string source = name == "lm_head.weight" ? "transformer.wte.weight" : name;
    const Values& was = before.at(source);
    const bool writes = name.ends_with("c_proj.weight") || name.ends_with("c_proj.bias") ||
                        (name != "lm_head.weight" && (name.ends_with("wte.weight") || name.ends_with("wpe.weight")));
    if (!writes) {
      EXPECT_EQ(now.values, was.values) << name;
      continue;
    }
    for (std::size_t row = 0; row < was.values.size(); row += 8) {  // Conv1D and tables: outputs are the last axis
      const double mean = mean_of(was.values, row, 8);
      for (std::size_t i = row; i < row + 8; ++i) {
        EXPECT_EQ(now.values[i], static_cast<double>(static_cast<float>(was.values[i] - mean))) << name;
      }
    }
  }
  EXPECT_EQ(read("out/tokenizer.json"), "{}");
  EXPECT_EQ(names("out"), (std::vector<std::string>{"config.json", "model.safetensors", "modeling_rmsnorm.py",
                                                    "rmsnorm.json", "tokenizer.json"}));
  EXPECT_EQ(report.json["parameters_added"], 88);
  EXPECT_FALSE(read("out/modeling_rmsnorm.py").empty());
  verify("in", "out");
}

TEST_F(Convert, the_configuration_changes_where_it_must) {
  convert(request("in", "out"));
  const Json config = Json::parse(read("out/config.json"));
  Json wanted = tiny_gpt2_config();
  wanted["tie_word_embeddings"] = false;
  wanted["auto_map"] = {{"AutoModelForCausalLM", "modeling_rmsnorm.RmsnormGPT2LMHeadModel"},
                        {"AutoModel", "modeling_rmsnorm.RmsnormGPT2Model"}};
  EXPECT_EQ(config.dump(), wanted.dump());  // the order of keys, too

  Request stock = request("in", "stock");
  stock.target = Target::kStock;
  stock.entry = Entry::kOp;
  convert(stock);
  EXPECT_EQ(read("stock/config.json"), read("in/config.json"));
  EXPECT_FALSE(exists("stock/modeling_rmsnorm.py"));
  verify("in", "stock");
}

TEST_F(Convert, programs_are_told_about_norms_and_entry) {
  Request by_op = request("in", "out");
  by_op.entry = Entry::kOp;
  convert(by_op);
  const Json told = Json::parse(read("out/rmsnorm.json"));
  EXPECT_EQ(told["entry"], Json::parse(R"([{"stream": "decoder", "module": ["h.0"], "side": "input"}])"));
  ASSERT_EQ(told["sites"].size(), 5u);
  EXPECT_EQ(told["sites"][0],
            Json::parse(R"({"module": ["h.0.ln_1"], "epsilon": 1e-5, "gain": "weight", "folded": "none"})"));
  EXPECT_EQ(read_model("out").at("transformer.wte.weight").values,
            read_model("in").at("transformer.wte.weight").values);
  verify("in", "out");
}

TEST_F(Convert, folding_leaves_norms_without_parameters) {
  for (const Affine affine : {Affine::kBias, Affine::kFull}) {
    const std::string out = affine == Affine::kBias ? "bias" : "full";
    Request request_full = request("in", out);
    request_full.affine = affine;
    request_full.target = Target::kHf;
    const Report done = convert(request_full);
    EXPECT_NE(done.text.find("warning: lm_head has a bias now"), std::string::npos) << done.text;
    const Tensors after = read_model(out);
    for (const auto& [name, tensor] : after) {
      if (name.find("ln_") == std::string::npos) continue;
      if (name.ends_with(".bias")) EXPECT_EQ(tensor.values, std::vector<double>(8, 0.0)) << name;
      if (name.ends_with(".weight") && affine == Affine::kFull) EXPECT_EQ(tensor.values, std::vector<double>(8, 1.0));
    }
    // c' = c + W b, and W' = W diag(w), for one of them.
    const Tensors before = read_model("in");
    const auto& w = before.at("transformer.h.1.mlp.c_fc.weight").values;
    const auto& b = before.at("transformer.h.1.ln_2.bias").values;
    const auto& g = before.at("transformer.h.1.ln_2.weight").values;
    for (std::size_t o = 0; o < 32; ++o) {
      double sum = before.at("transformer.h.1.mlp.c_fc.bias").values[o];
      for (std::size_t i = 0; i < 8; ++i) sum += w[i * 32 + o] * b[i];
      EXPECT_NEAR(after.at("transformer.h.1.mlp.c_fc.bias").values[o], sum, 1e-7 * std::fabs(sum) + 1e-9);
      const double wanted = affine == Affine::kFull ? static_cast<float>(w[o] * g[0]) : w[o];
      EXPECT_EQ(after.at("transformer.h.1.mlp.c_fc.weight").values[o], wanted);
    }
    EXPECT_EQ(Json::parse(read(out + "/rmsnorm.json"))["biases"], Json::parse(R"([["lm_head"]])"));
    verify("in", out);
  }
}

TEST_F(Convert, a_tie_stays_where_the_final_norm_sums_to_nothing) {
  Tensors tensors = tiny_gpt2();
  tensors["transformer.ln_f.weight"].values = std::vector<double>(8, 0.75);
  tensors["transformer.ln_f.bias"].values = std::vector<double>(8, 0.0);
  write_model("uniform", tiny_gpt2_config(), tensors);
  EXPECT_EQ(convert(request("uniform", "out")).json["untied"], Json::array());
  verify("uniform", "out");
}

TEST_F(Convert, types_f16_bf16_f64_and_wider) {
  for (const char* dtype : {"F16", "BF16", "F64"}) {
    for (const bool carry : {false, true}) {
      const std::string name = std::string(dtype) + (carry ? "c" : "");
      write_model(name, tiny_gpt2_config(), tiny_gpt2(dtype));
      Request r = request(name, name + "-out");
      r.carry_rounding = carry;
      convert(r);
      EXPECT_EQ(read_model(name + "-out").at("transformer.wpe.weight").dtype, dtype);
      verify(name, name + "-out");
    }
  }
  Request wider = request("F16", "wider");
  wider.type = RN_F32;
  convert(wider);
  const Tensors after = read_model("wider");
  EXPECT_EQ(after.at("transformer.wpe.weight").dtype, "F32");
  EXPECT_EQ(after.at("transformer.h.0.ln_1.weight").dtype, "F16");  // not changed
  verify("F16", "wider");
}

TEST_F(Convert, files_of_the_inner_model_get_prefixes_beside_a_head) {
  write_model("inner", tiny_gpt2_config(), tiny_gpt2("F32", ""));
  convert(request("inner", "out"));
  EXPECT_TRUE(read_model("out").contains("transformer.wte.weight"));
  EXPECT_TRUE(read_model("out").contains("lm_head.weight"));
  verify("inner", "out");
}

TEST_F(Convert, fold_alone_centres_nothing) {
  Report report;
  checkpoint::fold(request("in", "out"), report);
  const Tensors after = read_model("out");
  EXPECT_EQ(after.at("transformer.h.0.ln_1.weight").values, std::vector<double>(8, 1.0));
  EXPECT_EQ(after.at("transformer.wte.weight").values, read_model("in").at("transformer.wte.weight").values);
  EXPECT_EQ(after.at("transformer.ln_f.weight").values, read_model("in").at("transformer.ln_f.weight").values);
  EXPECT_NE(report.text.find("keeps its parameters"), std::string::npos);
  verify("in", "out");
}

TEST_F(Convert, inspect_writes_nothing_and_names_everything) {
  Report report;
  checkpoint::inspect(request("in", ""), report);
  for (const char* part : {"stream decoder, width 8", "h.{i}.ln_1", "h.{i}.mlp.c_proj", "88 more parameters"}) {
    EXPECT_NE(report.text.find(part), std::string::npos) << report.text;
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"in"}));
}

TEST_F(Convert, refusals) {
  Request r = request("in", "out");
  r.tie = Tie::kKeep;
  r.entry = Entry::kWeights;
  expect_refusal(r, "R04", "use --entry op");
  r = request("in", "out");
  r.affine = Affine::kBias;
  expect_refusal(r, "R05", "--target hf");
  r.target = Target::kHf;
  r.affine = Affine::kFull;
  r.entry = Entry::kOp;
  expect_refusal(r, "R06", "use --untie");
  r = request("in", "out");
  r.target = Target::kLlama;
  expect_refusal(r, "R12", "no class of llama is known that can compute gpt2");

  const auto changed = [&](auto change) {
    Tensors tensors = tiny_gpt2();
    change(tensors);
    std::filesystem::remove_all(path("bad"));
    write_model("bad", tiny_gpt2_config(), tensors);
    return request("bad", "out");
  };
  const std::string proj = "transformer.h.0.attn.c_proj.weight";
  expect_refusal(changed([&](Tensors& t) { t[proj].dtype = "I8"; }), "R07", "its type is 'I8'");
  expect_refusal(changed([&](Tensors& t) { t[proj].dtype = "F8_E4M3"; }), "R07", "it would be centred");
  expect_refusal(changed([&](Tensors& t) {
                   t.erase(proj);
                   t["transformer.h.0.attn.c_proj.qweight"] = {"I32", {1, 8}, {}};
                 }),
                 "R07", "the model is quantised");
  expect_refusal(changed([](Tensors& t) { t["transformer.h.0.extra.weight"] = {"F32", {8}, {}}; }), "R08", "--recipe");
  expect_refusal(changed([](Tensors& t) { t["transformer.h.2.ln_1.weight"] = {"F32", {8}, {}}; }), "R08", "h.2.ln_1");
  expect_refusal(changed([](Tensors& t) { t["transformer.wpe.weight"].shape = {5, 7}; }), "R08", "[5, 7]");
  expect_refusal(changed([](Tensors& t) { t.erase("transformer.h.1.ln_2.weight"); }), "R08", "do not hold it");
  expect_refusal(changed([](Tensors& t) {
                   t["transformer.wpe.weight"].values.assign(40, 1.0);
                   t["transformer.wpe.weight"].values[7] = NAN;
                 }),
                 "R10", "NaN or infinity");
  expect_refusal(changed([](Tensors& t) {
                   t["transformer.h.0.mlp.c_fc.bias"].values.assign(32, INFINITY);  // only copied
                 }),
                 "R10", "NaN or infinity");
  r = changed([](Tensors& t) {
    t["transformer.wpe.weight"].values.assign(40, 0.0);
    t["transformer.wpe.weight"].values[3] = 1e6;
  });
  r.type = RN_F16;
  expect_refusal(r, "R10", "would overflow f16");

  write("in/config.json", with_key(tiny_gpt2_config(), "layer_norm_epsilon", "small"));
  expect_refusal(request("in", "out"), "R09", "epsilon");
  write("in/config.json", with_key(tiny_gpt2_config(), "model_type", "gtp2"));
  expect_refusal(request("in", "out"), "R08", "'gtp2' is no family with a recipe");
}

TEST_F(Convert, a_converted_model_is_not_converted_again) {
  convert(request("in", "out"));
  expect_refusal(request("out", "again"), "R11", "already");
  std::filesystem::remove(path("out/rmsnorm.json"));  // the metadata of the tensors tell, too
  expect_refusal(request("out", "again"), "R11", "already");
}

TEST_F(Convert, recipes_of_ones_own_refuse_by_configuration) {
  Json recipe = Json::parse(R"({"recipe": 1, "family": "mine", "width": "n_embd", "epsilon": 1e-5,
    "streams": [{"name": "s", "entry": {"only_op": "positions are computed", "op": {"at": "block"}},
                 "sites": [{"norm": "ln", "readers": ["fc"], "exposed": "the norm's output is returned"}],
                 "writers": ["out"]}],
    "refuse": [{"when": {"post": true}, "code": "R01", "site": "post", "text": "post-norm"}]})");
  write("mine.json", recipe.dump());
  Tensors tensors;
  for (const char* name : {"fc.weight", "out.weight"}) tensors[name] = {"F32", {8, 8}, {}};
  for (const char* name : {"ln.weight", "ln.bias", "fc.bias"}) tensors[name] = {"F32", {8}, {}};
  write_model("mine", {{"n_embd", 8}}, tensors);
  Request r = request("mine", "out");
  r.recipe = path("mine.json");
  r.entry = Entry::kWeights;
  expect_refusal(r, "R03", "positions are computed; use --entry op");
  r.entry = Entry::kAuto;
  r.affine = Affine::kFull;
  expect_refusal(r, "R06", "the norm's output is returned");
  write("mine/config.json", R"({"n_embd": 8, "post": true})");
  expect_refusal(r, "R01", "post-norm");
  recipe["rms"] = true;
  recipe["streams"][0].erase("entry");
  write("mine.json", recipe.dump());
  write("mine/config.json", R"({"n_embd": 8})");
  expect_refusal(r, "R09", "RMSNorm already");
}

// transformers 5 keeps both; older versions drop the head.
TEST_F(Convert, a_head_that_differs_from_the_table_it_is_tied_to) {
  Tensors tensors = tiny_gpt2();
  tensors["lm_head.weight"] = {"F32", {11, 8}, {}};
  write_model("two", tiny_gpt2_config(), tensors);
  expect_refusal(request("two", "two-out"), "R04", "differs from transformer.wte.weight");
  expect_refusal(request("two", ""), "R04", "set tie_word_embeddings to false", checkpoint::inspect);
  Json config = tiny_gpt2_config();
  config["tie_word_embeddings"] = false;
  write("two/config.json", config.dump());
  convert(request("two", "two-out"));
  verify("two", "two-out");
  // A copy is no second head.
  tensors["transformer.wte.weight"] = {"F32", {11, 8}, std::vector<double>(88, 0.0)};
  for (std::size_t i = 0; i < 88; ++i) tensors["transformer.wte.weight"].values[i] = 0.25 * static_cast<double>(i % 7);
  tensors["lm_head.weight"] = tensors["transformer.wte.weight"];
  write_model("copy", tiny_gpt2_config(), tensors);
  convert(request("copy", "copy-out"));
  EXPECT_EQ(read_model("copy-out").at("lm_head.weight").values, tensors["lm_head.weight"].values);
  verify("copy", "copy-out");
}

TEST_F(Convert, flags_that_are_no_booleans) {
  for (const Json& value : {Json("false"), Json(0), Json(1), Json::array()}) {
    Json config = tiny_gpt2_config();
    config["tie_word_embeddings"] = value;
    write("in/config.json", config.dump());
    expect_refusal(request("in", "out"), "R12", "it must be true or false");
    config = tiny_gpt2_config();
    config["add_cross_attention"] = value;
    write("in/config.json", config.dump());
    expect_refusal(request("in", "out"), "R12", "it must be true or false");
  }
}

TEST_F(Convert, renames_that_grow_without_end) {
  const Json recipe = {{"recipe", 1},
                       {"family", "x"},
                       {"width", "n_embd"},
                       {"counts", {{"i", "n_layer"}}},
                       {"epsilon", 1e-5},
                       {"renames", std::vector<Json>(22, {"h", "hh"})},
                       {"streams",
                        {{{"name", "s"},
                          {"entry", {{"writers", {"wte"}}}},
                          {"sites", {{{"norm", "h.{i}.ln_1"}, {"readers", {"h.{i}.attn.c_attn"}}}}},
                          {"writers", {"h.{i}.attn.c_proj"}}}}}};
  write("recipe.json", recipe.dump());
  Request by_recipe = request("in", "out");
  by_recipe.recipe = path("recipe.json");
  try {
    convert(by_recipe);
    ADD_FAILURE() << "not refused";
  } catch (const tools::ToolError& error) {
    EXPECT_NE(std::string(error.what()).find("a name must have at most 1024"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace rmsnorm::convert
