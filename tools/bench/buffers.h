// Memory of benchmarks: filled, page-aligned, rotated through when the caches must be cold; and copies of it.
#ifndef RMSNORM_TOOLS_BENCH_BUFFERS_H_
#define RMSNORM_TOOLS_BENCH_BUFFERS_H_

#include <cstddef>
#include <cstdint>

#include "reference/values.h"
#include "tools/formats/tensor.h"

namespace rmsnorm::tools {

std::int64_t whole_pages(std::int64_t bytes);

// How many sets of so many bytes are together larger than the last-level cache, as far as the memory goes.
std::int64_t cold_sets(std::int64_t set_bytes);

// At least so many bytes in `arena`, from a page's start on. The arena grows and is kept from case to case, because
// fresh pages cost more than a norm.
std::byte* page_aligned(Buffer& arena, std::int64_t bytes);

// Elements of a fixed pattern, again and again: making new ones takes much longer than copying them.
void fill_pattern(std::byte* data, std::int64_t bytes, rn_type type, reference::Values values);

// A copy cut into pieces for threads: `lines` of `line_bytes`, of which those read lie in_stride apart.
struct CopyShape {
  std::int64_t lines, line_bytes, in_stride;
};

// By memcpy or by the streaming stores of the target in use; as by the library's rule, too few bytes wake no thread.
void copy_lines(std::byte* out, const std::byte* in, const CopyShape& shape, std::int32_t threads, bool streaming);

inline void copy_bytes(std::byte* out, const std::byte* in, std::int64_t bytes, std::int32_t threads, bool streaming) {
  copy_lines(out, in, {1, bytes, bytes}, threads, streaming);
}

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_BENCH_BUFFERS_H_
