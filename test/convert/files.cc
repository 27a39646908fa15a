#include "files.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "src/core/float16.h"
#include "tools/formats/safetensors.h"
#include "tools/formats/safetensors_dtype.h"

namespace rmsnorm::convert {

namespace fs = std::filesystem;

namespace {

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::vector<double> numbers(const std::string& name, std::int64_t count) {
  std::uint64_t state = std::hash<std::string>()(name) | 1;
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    values.push_back(static_cast<double>(state >> 40) * 0x1p-24 - 0.3);
  }
  return values;
}

std::string bytes_of(const std::string& name, const Values& tensor) {
  const std::int64_t count = count_of(tensor.shape);
  const std::vector<double> values = tensor.values.empty() ? numbers(name, count) : tensor.values;
  std::string bytes;
  for (const double value : values) {
    const float single = static_cast<float>(value);
    if (tensor.dtype == "F64") {
      append(bytes, value);
    } else if (tensor.dtype == "F32") {
      append(bytes, single);
    } else if (tensor.dtype == "F16") {
      append(bytes, f32_to_f16(single));
    } else if (tensor.dtype == "BF16") {
      append(bytes, f32_to_bf16(single));
    }
  }
  if (bytes.empty())
    bytes.assign(static_cast<std::size_t>(count * tools::safetensors_bits(tensor.dtype).value() / 8), '\0');
  return bytes;
}

}  // namespace

std::string safetensors(const Tensors& tensors, const Json& metadata) {
  Json header = Json::object();
  if (!metadata.is_null()) header["__metadata__"] = metadata;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::string bytes = bytes_of(name, tensor);
    header[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  const std::string text = header.dump();
  std::string file;
  append(file, static_cast<std::uint64_t>(text.size()));
  return file + text + data;
}

Json tiny_gpt2_config() {
  return {{"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}, {"n_embd", 8}, {"n_layer", 2},
          {"layer_norm_epsilon", 1e-5},           {"vocab_size", 11}};
}

Tensors tiny_gpt2(const std::string& dtype, const std::string& prefix) {
  Tensors tensors;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    tensors[prefix + name] = {dtype, std::move(shape), {}};
  };
  add("wte.weight", {11, 8});
  add("wpe.weight", {5, 8});
  for (const char* layer : {"h.0.", "h.1."}) {
    const std::string at = layer;
    for (const char* norm : {"ln_1", "ln_2"}) {
      add(at + norm + ".weight", {8});
      add(at + norm + ".bias", {8});
    }
    add(at + "attn.c_attn.weight", {8, 24});
    add(at + "attn.c_attn.bias", {24});
    add(at + "attn.c_proj.weight", {8, 8});
    add(at + "attn.c_proj.bias", {8});
    add(at + "mlp.c_fc.weight", {8, 32});
    add(at + "mlp.c_fc.bias", {32});
    add(at + "mlp.c_proj.weight", {32, 8});
    add(at + "mlp.c_proj.bias", {8});
    tensors[prefix + at + "attn.bias"] = {"U8", {1, 1, 5, 5}, {}};
  }
  add("ln_f.weight", {8});
  add("ln_f.bias", {8});
  return tensors;
}

Files::Files() {
  std::string name = fs::temp_directory_path().string() + "/rmsnorm-convert-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) std::abort();
  folder_ = name;
}

Files::~Files() {
  std::error_code error;
  fs::remove_all(folder_, error);
}

void Files::write(const std::string& name, const std::string& text) const {
  fs::create_directories(fs::path(path(name)).parent_path());
  std::ofstream(path(name), std::ios::binary) << text;
}

std::string Files::read(const std::string& name) const {
  std::ifstream in(path(name), std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

bool Files::exists(const std::string& name) const { return fs::exists(path(name)); }

std::vector<std::string> Files::names(const std::string& folder) const {
  std::vector<std::string> result;
  for (const auto& item : fs::directory_iterator(path(folder))) result.push_back(item.path().filename().string());
  std::sort(result.begin(), result.end());
  return result;
}

void Files::write_model(const std::string& name, const Json& config, const Tensors& tensors, int shards) const {
  write(name + "/config.json", config.dump(2));
  if (shards == 1) {
    write(name + "/model.safetensors", safetensors(tensors));
    return;
  }
  std::vector<Tensors> parts(static_cast<std::size_t>(shards));
  Json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  std::size_t next = 0;
  for (const auto& [tensor, values] : tensors) {
    const std::size_t shard = next++ % parts.size();
    parts[shard][tensor] = values;
    index["weight_map"][tensor] = fmt::format("model-{}.safetensors", shard);
  }
  for (std::size_t s = 0; s < parts.size(); ++s)
    write(fmt::format("{}/model-{}.safetensors", name, s), safetensors(parts[s]));
  write(name + "/model.safetensors.index.json", index.dump());
}

Tensors Files::read_model(const std::string& name) const {
  Tensors tensors;
  for (const std::string& file : names(name)) {
    if (!file.ends_with(".safetensors")) continue;
    const tools::FileSource source(path(name + "/" + file));
    const tools::SafetensorsHeader header = tools::read_safetensors_header(source);
    for (const auto& entry : header.entries) {
      Values& values = tensors[entry.name];
      values.dtype = entry.dtype;
      values.shape = entry.shape;
      std::string bytes(entry.end - entry.begin, '\0');
      source.read(header.data_start + entry.begin, std::as_writable_bytes(std::span(bytes)));
      for (std::size_t i = 0; i < static_cast<std::size_t>(count_of(entry.shape)); ++i) {
        const auto load = [&]<class T>(T value) {
          std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
          return value;
        };
        if (entry.dtype == "F64") values.values.push_back(load(0.0));
        if (entry.dtype == "F32") values.values.push_back(load(0.0f));
        if (entry.dtype == "F16") values.values.push_back(f16_to_f32(load(std::uint16_t{0})));
        if (entry.dtype == "BF16") values.values.push_back(bf16_to_f32(load(std::uint16_t{0})));
      }
    }
  }
  return tensors;
}

Request Files::request(const std::string& in, const std::string& out) const {
  Request request;
  request.input = path(in);
  request.output = out.empty() ? "" : path(out);
  request.threads = 2;
  return request;
}

Report Files::convert(const Request& request) const {
  Report report;
  checkpoint::convert(request, report);
  return report;
}

Report Files::verify(const std::string& in, const std::string& out) const {
  Report report;
  try {
    checkpoint::verify(request(in, out), report);
  } catch (const tools::ToolError& error) {
    ADD_FAILURE() << error.what() << "\n" << report.text;
  }
  return report;
}

void Files::expect_refusal(const Request& request, const char* code, const std::string& text,
                           void (*command)(const Request&, Report&)) const {
  Report report;
  try {
    command(request, report);
    ADD_FAILURE() << "not refused: " << code << " " << text;
  } catch (const Refusal& refusal) {
    EXPECT_STREQ(refusal_name(refusal.refusal()), code) << refusal.what();
    EXPECT_NE(std::string(refusal.what()).find(text), std::string::npos) << refusal.what();
    EXPECT_FALSE(refusal.site().empty());
  }
  if (!request.output.empty()) EXPECT_FALSE(fs::exists(request.output));
}

void Files::expect_difference(const std::string& in, const std::string& out, const std::string& text) const {
  Report report;
  try {
    checkpoint::verify(request(in, out), report);
    ADD_FAILURE() << "verify found nothing; it must find " << text << "\n" << report.text;
  } catch (const tools::ToolError& error) {
    const std::string all = std::string(error.what()) + "\n" + report.text;
    EXPECT_NE(all.find(text), std::string::npos) << all;
  }
}

}  // namespace rmsnorm::convert
