// The bytes of each tensor depend on nothing but the model and what was asked.
#include <algorithm>
#include <cmath>

#include "files.h"

namespace rmsnorm::convert {
namespace {

// Large enough that a small chunk holds a few rows only.
Tensors wide(const std::string& dtype) {
  Tensors tensors = tiny_gpt2(dtype);
  const std::int64_t d = 96;
  for (auto& [name, tensor] : tensors) {
    for (std::int64_t& length : tensor.shape) {
      if (length % 8 == 0) length = length / 8 * d;
    }
  }
  return tensors;
}

class Bytes : public Files {
 protected:
  void expect_same_tensors(const std::string& a, const std::string& b) const {
    const Tensors x = read_model(a);
    const Tensors y = read_model(b);
    ASSERT_EQ(x.size(), y.size());
    for (const auto& [name, tensor] : x) EXPECT_EQ(tensor.values, y.at(name).values) << name << " " << b;
  }
};

TEST_F(Bytes, threads_and_chunk) {
  Json config = tiny_gpt2_config();
  config["n_embd"] = 96;
  for (const char* dtype : {"F32", "BF16"}) {
    for (const Affine affine : {Affine::kKeep, Affine::kFull}) {
      const std::string name = std::string(dtype) + (affine == Affine::kFull ? "full" : "keep");
      write_model(name, config, wide(dtype));
      Request r = request(name, name + "-0");
      r.affine = affine;
      r.target = Target::kHf;
      r.carry_rounding = affine == Affine::kFull;
      convert(r);
      int run = 0;
      for (const std::size_t chunk : {std::size_t{4096}, std::size_t{20000}, std::size_t{1} << 24}) {
        for (const int threads : {1, 3, 8}) {
          r.output = path(name + "-" + std::to_string(++run));
          r.chunk = chunk;
          r.threads = threads;
          convert(r);
          EXPECT_EQ(read(name + "-0/model.safetensors"), read(name + "-" + std::to_string(run) + "/model.safetensors"))
              << chunk << " " << threads;
        }
      }
      Request check = request(name, name + "-0");
      check.chunk = 4096;
      Report report;
      EXPECT_NO_THROW(checkpoint::verify(check, report)) << report.text;
    }
  }
}

TEST_F(Bytes, shards_of_the_input) {
  write_model("one", tiny_gpt2_config(), tiny_gpt2());
  write_model("three", tiny_gpt2_config(), tiny_gpt2(), 3);
  convert(request("one", "one-out"));
  convert(request("three", "three-out"));
  expect_same_tensors("one-out", "three-out");
  // The same files, and an index that fits them: the converter itself reads it.
  const Json index = Json::parse(read("three-out/model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), read_model("three-out").size());
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : read_model("three-out")) {
    bytes += (tensor.dtype == "U8" ? 25 : tensor.values.size() * 4);
  }
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
  verify("three", "three-out");
  verify("one", "three-out");
}

TEST_F(Bytes, every_writer_of_a_linear_layout_and_experts) {
  // [experts, out, in], LayerScale, a local norm of two heads, a convolution: all in one recipe.
  const Json recipe = Json::parse(R"({"recipe": 1, "family": "mixed", "width": "d", "epsilon": 1e-5, "counts": {"i": 1},
    "streams": [{"name": "s",
      "entry": {"writers": ["embed", {"tensor": "token"}, {"module": "patch", "layout": "conv"}], "op": {"at": "b"}},
      "sites": [{"norm": "ln", "readers": ["q", "up", {"module": "head", "chunks": 2}]}],
      "writers": [{"module": "down", "scale": "scale"}, {"tensor": "experts", "layout": "linear", "bias": "experts_bias"}]}],
    "local": [{"norm": "q_norm", "writers": [{"module": "q", "groups": 2}]}]})");
  write("mixed.json", recipe.dump());
  Tensors t;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    t[name] = {"F32", std::move(shape), {}};
  };
  add("embed.weight", {7, 6});
  add("token", {1, 1, 6});
  add("patch.weight", {6, 3, 2, 2});
  add("patch.bias", {6});
  add("ln.weight", {6});
  add("ln.bias", {6});
  add("q.weight", {8, 6});
  add("q.bias", {8});
  add("q_norm.weight", {4});
  add("q_norm.bias", {4});
  add("up.weight", {10, 6});
  add("up.bias", {10});
  add("head.weight", {5, 12});
  add("head.bias", {5});
  add("down.weight", {6, 10});
  add("down.bias", {6});
  add("scale", {6});
  add("experts", {3, 6, 4});
  add("experts_bias", {3, 6});
  write_model("in", {{"d", 6}, {"model_type", "mixed"}}, t);
  for (const Affine affine : {Affine::kKeep, Affine::kBias, Affine::kFull}) {
    const std::string out = "out" + std::to_string(static_cast<int>(affine));
    Request r = request("in", out);
    r.recipe = path("mixed.json");
    r.affine = affine;
    convert(r);
    Request check = request("in", out);
    check.recipe = r.recipe;
    Report report;
    EXPECT_NO_THROW(checkpoint::verify(check, report)) << report.text;
    EXPECT_GE(report.json["modules_compared"], 6);
    const double scale = read_model(out).at("scale").values[0];
    EXPECT_EQ(std::ldexp(1.0, std::ilogb(scale)), scale);  // a power of two
  }
}

}  // namespace
}  // namespace rmsnorm::convert
