// Any bytes are either refused with a ToolError or give a tensor whose size fits, which is written and read back equal.
#include <cstdlib>
#include <cstring>

#include "tools/error.h"
#include "tools/formats/npy.h"

namespace {

using namespace rmsnorm::tools;

void require_equal(const Tensor& a, const Tensor& b) {
  if (a.type != b.type || a.shape != b.shape || a.data.size() != b.data.size() ||
      std::memcmp(a.data.data(), b.data.data(), a.data.size()) != 0) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemorySource source("fuzz.npy", std::as_bytes(std::span(data, size)));
  try {
    const Tensor tensor = read_npy(source, RN_BF16);
    std::string bytes = npy_header(tensor.type, tensor.shape);
    bytes.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    require_equal(tensor, read_npy(MemorySource("written.npy", std::as_bytes(std::span(bytes))), RN_BF16));
  } catch (const ToolError& error) {
    if (error.code() != ExitCode::kBadInput) std::abort();
  }
  return 0;
}
