// A target of another class: tensors under other names, joined, cut and made up, as a recipe says.
#include <filesystem>

#include "files.h"

namespace rmsnorm::convert {
namespace {

constexpr std::size_t kWidth = 4;

const char* const kRecipe = R"({
  "recipe": 1, "family": "tiny", "width": "d", "counts": {"i": "n"}, "epsilon": "eps", "inert": ["unused"],
  "renames": [["layer.", "l."]],
  "streams": [{
    "name": "s",
    "entry": {"writers": [{"tensor": "table"}], "op": {"at": "layer.0"}},
    "sites": [
      {"norm": "layer.{i}.ln", "readers": ["layer.{i}.{q,k,v}"]},
      {"norm": "ln", "readers": [], "exposed": "it is returned"}
    ],
    "writers": ["layer.{i}.o"]
  }],
  "bias_keys": [{"key": "biases", "modules": ["layer.{i}.{q,k,v}"]}],
  "targets": {"timm": {
    "affine": "bias",
    "refuse": [{"when": {"odd": true}, "code": "R12", "site": "odd", "text": "even only"}],
    "tensors": [
      {"tensor": "positions", "of": [{"name": "table", "to": 1}, {"zeros": 2}, {"name": "table", "from": 1}]},
      {"tensor": "blocks.{i}.norm", "of": ["layer.{i}.ln.weight"]},
      {"module": "blocks.{i}.qkv", "of": ["layer.{i}.{q,k,v}"]},
      {"module": "blocks.{i}.out", "of": ["layer.{i}.o"]},
      {"tensor": "norm", "of": ["ln.weight"]},
      {"tensor": "head.weight", "of": [{"identity": "d"}]},
      {"tensor": "head.bias", "of": ["ln.bias"]}
    ],
    "left_out": ["unused"],
    "config": [
      {"set": {"name": "other", "args.width": {"key": "d"}, "args.heads": {"key": "absent"},
               "args.ratio": {"ratio": [{"length": "layer.0.q.weight", "axis": 0}, {"key": "d"}]}}},
      {"when": {"n": 2}, "set": {"args.two": true}},
      {"when": {"n": 3}, "set": {"args.three": true}}
    ]
  }}
})";

Tensors tiny(const std::string& dtype, bool biases = true) {
  Tensors tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    tensors[name] = {dtype, std::move(shape), {}};
  };
  add("table", {1, 3, 4});
  add("unused", {2});
  for (const char* layer : {"l.0.", "l.1."}) {
    add(std::string(layer) + "ln.weight", {4});
    add(std::string(layer) + "ln.bias", {4});
    for (const char* reader : {"q", "k", "v"}) {
      add(std::string(layer) + reader + ".weight", {4, 4});
      if (biases) add(std::string(layer) + reader + ".bias", {4});
    }
    add(std::string(layer) + "o.weight", {4, 4});
    add(std::string(layer) + "o.bias", {4});
  }
  add("ln.weight", {4});
  add("ln.bias", {4});
  return tensors;
}

Json config() { return {{"model_type", "tiny"}, {"d", 4}, {"n", 2}, {"eps", 1e-6}, {"biases", true}}; }

class OtherClass : public Files {
 protected:
  void SetUp() override {
    write("recipe.json", kRecipe);
    write_model("in", config(), tiny("F64"));
  }
  Request timm(const std::string& in, const std::string& out) const {
    Request r = request(in, out);
    r.target = Target::kTimm;
    r.recipe = path("recipe.json");
    return r;
  }
  void expect_verified(const std::string& in, const std::string& out) const {
    Report report;
    EXPECT_NO_THROW(checkpoint::verify(timm(in, out), report)) << report.text;
  }
  template <class Change>
  void expect_caught(const Change& change, const std::string& text) {
    Tensors tensors = read_model("out");
    change(tensors);
    std::filesystem::remove_all(path("mutant"));
    std::filesystem::copy(path("out"), path("mutant"));
    write("mutant/model.safetensors", safetensors(tensors));
    Report report;
    try {
      checkpoint::verify(timm("in", "mutant"), report);
      ADD_FAILURE() << "not caught: " << text;
    } catch (const tools::ToolError& error) {
      EXPECT_EQ(error.code(), tools::ExitCode::kOutsideBudget) << error.what();
      EXPECT_NE(report.text.find(text), std::string::npos) << report.text;
    }
  }
};

std::vector<double> joined(std::initializer_list<std::vector<double>> parts) {
  std::vector<double> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// c + W b
std::vector<double> with_term(const Tensors& t, const std::string& layer, const std::string& reader) {
  const auto& w = t.at(layer + reader + ".weight").values;
  const auto& b = t.at(layer + "ln.bias").values;
  const auto bias = t.find(layer + reader + ".bias");
  std::vector<double> c = bias == t.end() ? std::vector<double>(kWidth, 0.0) : bias->second.values;
  for (std::size_t o = 0; o < kWidth; ++o) {
    for (std::size_t i = 0; i < kWidth; ++i) c[o] += w[o * kWidth + i] * b[i];
  }
  return c;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-14);
}

TEST_F(OtherClass, joins_cuts_and_renames) {
  for (const bool biases : {true, false}) {
    const std::string in = biases ? "in" : "bare";
    const std::string out = in + "-out";
    if (!biases) {
      Json without = config();
      without["biases"] = false;
      write_model(in, without, tiny("F64", false));
    }
    convert(timm(in, out));
    expect_verified(in, out);
    const Tensors before = read_model(in);
    const Tensors after = read_model(out);
    EXPECT_EQ(after.size(), 14u);  // the norms' biases and what is left out are gone
    for (const char* i : {"0", "1"}) {
      const std::string layer = std::string("l.") + i + ".";
      const std::string block = std::string("blocks.") + i + ".";
      const Values& qkv = after.at(block + "qkv.weight");
      EXPECT_EQ(qkv.shape, (std::vector<std::int64_t>{12, 4}));
      EXPECT_EQ(qkv.values, joined({before.at(layer + "q.weight").values, before.at(layer + "k.weight").values,
                                    before.at(layer + "v.weight").values}));
      EXPECT_EQ(after.at(block + "qkv.bias").shape, (std::vector<std::int64_t>{12}));
      expect_near(
          after.at(block + "qkv.bias").values,
          joined({with_term(before, layer, "q"), with_term(before, layer, "k"), with_term(before, layer, "v")}));
      EXPECT_EQ(after.at(block + "norm").values, before.at(layer + "ln.weight").values);
    }
    std::vector<double> rows = before.at("table").values;
    for (std::size_t r = 0; r < rows.size(); r += kWidth) {
      const double mean = (rows[r] + rows[r + 1] + rows[r + 2] + rows[r + 3]) / kWidth;
      for (std::size_t c = 0; c < kWidth; ++c) rows[r + c] -= mean;
    }
    rows.insert(rows.begin() + kWidth, 2 * kWidth, 0.0);
    EXPECT_EQ(after.at("positions").shape, (std::vector<std::int64_t>{1, 5, 4}));
    expect_near(after.at("positions").values, rows);
    EXPECT_EQ(after.at("head.weight").values, (std::vector<double>{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}));
    EXPECT_EQ(after.at("head.bias").values, before.at("ln.bias").values);
    EXPECT_EQ(Json::parse(read(out + "/config.json")),
              Json::parse(R"({"name": "other", "args": {"width": 4, "ratio": 1.0, "two": true}})"));
  }
}

TEST_F(OtherClass, bytes_depend_on_neither_shards_nor_threads_nor_chunk) {
  for (const char* dtype : {"F64", "F16"}) {
    const std::string one = std::string("one") + dtype;
    write_model(one, config(), tiny(dtype));
    write_model(one + "-3", config(), tiny(dtype), 3);
    convert(timm(one, one + "-out"));
    const Tensors expected = read_model(one + "-out");
    int run = 0;
    for (const std::string& in : {one, one + "-3"}) {
      for (const std::size_t chunk : {std::size_t{16}, std::size_t{1} << 20}) {
        for (const int threads : {1, 3}) {
          Request r = timm(in, one + "-" + std::to_string(10 + ++run));
          r.chunk = chunk;
          r.threads = threads;
          Report report;
          checkpoint::convert(r, report);
          const std::string out = one + "-" + std::to_string(10 + run);
          const Tensors got = read_model(out);
          ASSERT_EQ(got.size(), expected.size());
          for (const auto& [name, tensor] : expected) EXPECT_EQ(got.at(name).values, tensor.values) << name;
          EXPECT_FALSE(exists(out + "/model.safetensors.index.json"));
          expect_verified(in, out);
        }
      }
    }
  }
}

TEST_F(OtherClass, parts_get_one_type) {
  Tensors mixed = tiny("F32");
  mixed["l.0.k.weight"].dtype = "F16";
  write_model("mixed", config(), mixed);
  expect_refusal(timm("mixed", "out"), "R08", "they must have one type: choose it with --dtype");
  Request r = timm("mixed", "narrow");
  r.type = RN_BF16;
  Report report;
  checkpoint::convert(r, report);
  EXPECT_EQ(read_model("narrow").at("blocks.0.qkv.weight").dtype, "BF16");
  EXPECT_EQ(read_model("narrow").at("blocks.1.qkv.weight").dtype, "F32");  // nothing of it changes
  EXPECT_EQ(read_model("narrow").at("positions").dtype, "BF16");
  expect_verified("mixed", "narrow");
}

TEST_F(OtherClass, verify_sees_each_fault) {
  convert(timm("in", "out"));
  const Tensors before = read_model("in");
  expect_verified("in", "out");
  expect_caught(
      [](Tensors& t) {  // the order of q and k
        auto& w = t["blocks.1.qkv.weight"].values;
        std::swap_ranges(w.begin(), w.begin() + 16, w.begin() + 16);
      },
      "reader l.1.q.weight");
  expect_caught(
      [&](Tensors& t) {  // a bias not folded
        auto& b = t["blocks.0.qkv.bias"].values;
        std::copy_n(before.at("l.0.v.bias").values.begin(), 4, b.begin() + 8);
      },
      "reader l.0.v.weight");
  expect_caught([](Tensors& t) { t.erase("blocks.0.qkv.bias"); }, "blocks.0.qkv.bias: it is missing");
  expect_caught(
      [](Tensors& t) {
        t["blocks.0.qkv.weight"].shape = {4, 12};
      },
      "its shape is [4, 12]; it must be [12, 4]");
  expect_caught([](Tensors& t) { t["positions"].values[5] = 1e-3; }, "positions: 2 of its rows must be 0");
  expect_caught([](Tensors& t) { t["positions"].values[0] += 0.5; }, "writer table");
  expect_caught([](Tensors& t) { t["positions"].values[19] += 0.5; }, "writer table");
  expect_caught([](Tensors& t) { t["head.weight"].values[1] = 1; }, "head.weight: it must be the identity");
  expect_caught([](Tensors& t) { t["head.bias"].values[1] = 0; }, "ln: its parameters changed");
  expect_caught([](Tensors& t) { t["extra"] = {"F64", {1}, {0}}; }, "extra: nothing asks for it");
  expect_caught([&](Tensors& t) { t["blocks.1.out.bias"] = before.at("l.1.o.bias"); }, "writer l.1.o.weight");
  expect_caught([](Tensors& t) { t["blocks.0.norm"].values[2] *= 2; }, "reader l.0.q.weight");
  Json other = Json::parse(read("out/config.json"));
  other["args"]["width"] = 5;
  write("out/config.json", other.dump());
  expect_caught([](Tensors&) {}, "config.json: ");
}

TEST_F(OtherClass, refusals) {
  Request keep = timm("in", "out");
  keep.affine = Affine::kKeep;
  expect_refusal(keep, "R12", "the norms of the target's class have no bias");
  Request op = timm("in", "out");
  op.entry = Entry::kOp;
  expect_refusal(op, "R03", "no operation at the entry");
  Json odd = config();
  odd["odd"] = true;
  write_model("odd", odd, tiny("F64"));
  expect_refusal(timm("odd", "out"), "R12", "even only");
  Json recipe = Json::parse(kRecipe);
  recipe["targets"]["timm"]["left_out"] = Json::array();
  write("recipe.json", recipe.dump());
  expect_refusal(timm("in", "out"), "R12", "no place for it");
  recipe = Json::parse(kRecipe);
  recipe["targets"]["timm"]["tensors"][0]["of"][0]["to"] = 7;
  write("recipe.json", recipe.dump());
  expect_refusal(timm("in", "out"), "R08", "rows 0 to 7 must be there");
  recipe = Json::parse(kRecipe);
  recipe["targets"]["timm"]["tensors"][2]["of"] = {"layer.{i}.q", "layer.{i}.ln"};
  write("recipe.json", recipe.dump());
  expect_refusal(timm("in", "out"), "R08", "cannot be joined");
  EXPECT_FALSE(exists("out"));
}

}  // namespace
}  // namespace rmsnorm::convert
