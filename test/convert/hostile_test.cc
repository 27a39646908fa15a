// Files that contradict each other or themselves: R14, before anything is written.
#include <filesystem>

#include "files.h"

namespace rmsnorm::convert {
namespace {

class Hostile : public Files {
 protected:
  void SetUp() override { write_model("in", tiny_gpt2_config(), tiny_gpt2(), 3); }
  Json index() const { return Json::parse(read("in/model.safetensors.index.json")); }
  void write_index(const Json& json) const { write("in/model.safetensors.index.json", json.dump()); }
  void expect_malformed(const std::string& text) const { expect_refusal(request("in", "out"), "R14", text); }
};

TEST_F(Hostile, index_and_shards_disagree) {
  Json json = index();
  json["weight_map"]["transformer.wte.weight"] = "model-0.safetensors";
  json["weight_map"]["transformer.wpe.weight"] = "model-0.safetensors";
  write_index(json);
  expect_malformed("the index says that shard");
  SetUp();
  json = index();
  json["weight_map"]["nowhere.weight"] = "model-0.safetensors";
  write_index(json);
  expect_malformed("none does");
}

TEST_F(Hostile, a_tensor_that_the_index_lacks) {
  Json json = index();
  json["weight_map"].erase("transformer.wte.weight");
  write_index(json);
  expect_malformed("the index does not name it");
}

TEST_F(Hostile, a_tensor_in_two_shards) {
  write("in/model-0.safetensors", safetensors(tiny_gpt2()));
  expect_malformed("both hold it");
}

TEST_F(Hostile, a_missing_shard) {
  std::filesystem::remove(path("in/model-1.safetensors"));
  expect_malformed("is not in the folder");
}

TEST_F(Hostile, names_of_shards_that_lead_elsewhere) {
  for (const char* name : {"../in/model-0.safetensors", "/etc/passwd", "..", "", ".hidden.safetensors",
                           "a\\b.safetensors", "model-0.bin", "sub/model.safetensors"}) {
    Json json = index();
    json["weight_map"]["transformer.wte.weight"] = name;
    write_index(json);
    expect_malformed("it must be a plain file name");
  }
  Json json = index();
  json["weight_map"]["transformer.wte.weight"] = std::string("model-0.safetensors\0.safetensors", 32);
  write_index(json);
  expect_malformed("it must be a plain file name");
}

TEST_F(Hostile, index_that_is_none) {
  for (const char* text : {"[]", "{}", R"({"weight_map": []})", R"({"weight_map": {"a": 3}})", "{\"weight_map\": {",
                           R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})"}) {
    write("in/model.safetensors.index.json", text);
    expect_refusal(request("in", "out"), "R14", "");
  }
}

TEST_F(Hostile, one_file_beside_an_index_that_does_not_name_it) {
  write("in/model.safetensors", safetensors(tiny_gpt2()));
  expect_malformed("remove one of them");
}

TEST_F(Hostile, truncated_and_garbled_shards) {
  const std::string whole = read("in/model-0.safetensors");
  for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{40}, whole.size() - 1}) {
    write("in/model-0.safetensors", whole.substr(0, length));
    expect_malformed("model-0.safetensors");
  }
  write("in/model-0.safetensors", whole + "x");
  expect_malformed("the end of the file");
}

TEST_F(Hostile, pickles_are_never_read) {
  std::filesystem::remove_all(path("in"));
  write("in/config.json", tiny_gpt2_config().dump());
  write("in/pytorch_model.bin", "x");
  expect_malformed("safe_serialization=True");
}

TEST_F(Hostile, configurations) {
  write("in/config.json", "{\"a\": ");
  expect_malformed("must be valid JSON");
  write("in/config.json", "[1]");
  expect_malformed("must be an object");
  Json config = tiny_gpt2_config();
  config["n_layer"] = 1e300;
  write("in/config.json", config.dump());
  expect_refusal(request("in", "out"), "R08", "must be a whole number");
  config["n_layer"] = 4000000000;
  write("in/config.json", config.dump());
  expect_refusal(request("in", "out"), "R08", "at most");
  config["n_layer"] = -1;
  write("in/config.json", config.dump());
  expect_refusal(request("in", "out"), "R08", "must be a whole number");
  std::filesystem::remove(path("in/config.json"));
  expect_refusal(request("in", "out"), "R08", "there is no such file");
}

TEST_F(Hostile, links_to_files_are_followed_and_odd_files_stay) {
  std::filesystem::rename(path("in/model-0.safetensors"), path("blob"));
  std::filesystem::create_symlink("../blob", path("in/model-0.safetensors"));
  write("in/pytorch_model.bin", "weights of the original");
  write("in/onnx/model.onnx", "x");
  write("in/merges.txt", "a b");
  std::filesystem::create_symlink("nowhere", path("in/dangling.txt"));
  const Report report = convert(request("in", "out"));
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(path("out/model-0.safetensors"))));
  EXPECT_EQ(read("out/merges.txt"), "a b");
  for (const char* name : {"pytorch_model.bin", "onnx", "dangling.txt"}) {
    EXPECT_FALSE(exists(std::string("out/") + name));
    EXPECT_NE(report.text.find("'" + std::string(name) + "' is not copied"), std::string::npos) << report.text;
  }
  verify("in", "out");
}

}  // namespace
}  // namespace rmsnorm::convert
