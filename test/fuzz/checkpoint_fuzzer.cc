// Bytes are a recipe, a configuration, an index of tensors (name: shape) and options, one a line. Whatever they are:
// they are refused with a ToolError, or a plan comes out. Nothing is read but headers, nothing written.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "convert/checkpoint/plan.h"
#include "convert/convert.h"
#include "tools/error.h"

namespace {

using namespace rmsnorm;
using convert::checkpoint::Json;

// One folder for all runs of this process.
const std::string& folder() {
  static const std::string path = [] {
    std::string name = std::filesystem::temp_directory_path().string() + "/rmsnorm-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    return name;
  }();
  return path;
}

void write(const std::string& name, std::string_view text) {
  std::ofstream(folder() + "/" + name, std::ios::binary) << text;
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// A sparse file: shapes may be large, their bytes are holes.
void write_tensors(std::string_view header) {
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  write("model.safetensors", bytes + std::string(header));
  constexpr std::size_t kRoom = 1 << 16;
  std::error_code error;
  std::filesystem::resize_file(folder() + "/model.safetensors", 8 + header.size() + kRoom, error);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view recipe = take_line(text);
  const std::string_view config = take_line(text);
  const std::string_view options = take_line(text);
  const std::string_view index = take_line(text);
  write("config.json", config);
  write("recipe.json", recipe);
  write_tensors(text);
  std::filesystem::remove(folder() + "/model.safetensors.index.json");
  if (!index.empty()) write("model.safetensors.index.json", index);
  convert::Request request;
  request.input = folder();
  request.recipe = folder() + "/recipe.json";
  const auto choose = [&](std::size_t at, int most) {
    return at < options.size() ? static_cast<unsigned char>(options[at]) % most : 0;
  };
  request.affine = static_cast<convert::Affine>(choose(0, 4));
  request.entry = static_cast<convert::Entry>(choose(1, 3));
  request.tie = static_cast<convert::Tie>(choose(2, 3));
  request.target = static_cast<convert::Target>(choose(3, 8));
  convert::Report report;
  try {
    convert::checkpoint::inspect(request, report);
    if (report.text.empty()) std::abort();
  } catch (const tools::ToolError& error) {
    if (error.code() != tools::ExitCode::kBadInput) std::abort();
  }
  return 0;
}
