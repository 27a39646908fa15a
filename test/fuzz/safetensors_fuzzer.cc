// Any bytes are either refused with a ToolError or are a file all of whose tensors lie inside it, without overlap.
#include <cstdlib>

#include "tools/error.h"
#include "tools/formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rmsnorm::tools;
  const MemorySource source("fuzz.safetensors", std::as_bytes(std::span(data, size)));
  try {
    const SafetensorsHeader header = read_safetensors_header(source);
    std::uint64_t covered = header.data_start;
    for (const auto& entry : header.entries) {
      covered += entry.end - entry.begin;
      try {
        const Tensor tensor = read_safetensors(source, header, entry.name);
        if (tensor.data.size() != entry.end - entry.begin) std::abort();
      } catch (const ToolError& error) {
        if (error.code() != ExitCode::kBadInput) std::abort();  // a type that cannot be normalised
      }
    }
    if (covered != size) std::abort();
  } catch (const ToolError& error) {
    if (error.code() != ExitCode::kBadInput) std::abort();
  }
  return 0;
}
