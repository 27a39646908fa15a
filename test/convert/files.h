// Small checkpoints, made by the tests: a folder of their own, safetensors files of any content, one GPT-2.
#ifndef RMSNORM_TEST_CONVERT_FILES_H_
#define RMSNORM_TEST_CONVERT_FILES_H_

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "convert/convert.h"
#include "convert/refusal.h"

namespace rmsnorm::convert {

using Json = nlohmann::ordered_json;

struct Values {
  std::string dtype = "F32";  // F64, F32, F16, BF16; any other: zeros of that type
  std::vector<std::int64_t> shape;
  std::vector<double> values;  // empty: numbers of non-zero mean that depend on the name
};
using Tensors = std::map<std::string, Values>;

// The bytes of a safetensors file. `metadata` may be null.
std::string safetensors(const Tensors& tensors, const Json& metadata = {{"format", "pt"}});

// Layers, biases and norm parameters all non-trivial.
Tensors tiny_gpt2(const std::string& dtype = "F32", const std::string& prefix = "transformer.");
Json tiny_gpt2_config();

class Files : public testing::Test {
 protected:
  Files();
  ~Files() override;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;
  bool exists(const std::string& name) const;
  std::vector<std::string> names(const std::string& folder = "") const;  // sorted

  // A model folder; `shards` above 1: with an index, tensors dealt out in turn.
  void write_model(const std::string& name, const Json& config, const Tensors& tensors, int shards = 1) const;
  Tensors read_model(const std::string& name) const;  // as f64

  Request request(const std::string& in, const std::string& out) const;
  Report convert(const Request& request) const;
  Report verify(const std::string& in, const std::string& out) const;

  // Expects a refusal with this code, whose message holds the text.
  void expect_refusal(const Request& request, const char* code, const std::string& text,
                      void (*command)(const Request&, Report&) = checkpoint::convert) const;
  // Expects that verify finds a difference whose message holds the text.
  void expect_difference(const std::string& in, const std::string& out, const std::string& text) const;

 private:
  std::string folder_;
};

}  // namespace rmsnorm::convert

#endif  // RMSNORM_TEST_CONVERT_FILES_H_
