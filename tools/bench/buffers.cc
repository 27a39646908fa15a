#include "tools/bench/buffers.h"

#include <algorithm>
#include <cstring>

#include "cpu/target.h"
#include "cpu/threads.h"
#include "tools/error.h"
#include "tools/machine.h"

namespace rmsnorm::tools {

namespace {

constexpr std::int64_t kLeastRotation = std::int64_t{128} << 20;
constexpr std::int64_t kPageBytes = 4096;

struct CopyTask {
  std::byte* out;
  const std::byte* in;
  std::int64_t lines, line_bytes, in_stride;
  std::int64_t pieces;
  void (*stream)(void*, const void*, std::size_t);  // null: memcpy

  void copy(std::byte* to, const std::byte* from, std::int64_t bytes) const {
    if (stream != nullptr) {
      stream(to, from, static_cast<std::size_t>(bytes));
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  }

  void run(std::int64_t piece) const {
    if (lines == 1) {
      constexpr std::int64_t kLine = 64;
      const auto cut = [&](std::int64_t i) {
        return i == pieces ? line_bytes : line_bytes / pieces * i / kLine * kLine;
      };
      return copy(out + cut(piece), in + cut(piece), cut(piece + 1) - cut(piece));
    }
    for (std::int64_t line = lines * piece / pieces; line < lines * (piece + 1) / pieces; ++line) {
      copy(out + line * line_bytes, in + line * in_stride, line_bytes);
    }
  }
};

}  // namespace

std::int64_t whole_pages(std::int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

std::int64_t cold_sets(std::int64_t set_bytes) {
  const Machine machine = this_machine();
  const std::int64_t wanted = std::max(kLeastRotation, machine.l3_bytes) + 1;
  const std::int64_t limit = machine.available_bytes == 0 ? wanted : machine.available_bytes / 2;
  return std::max<std::int64_t>(1, (std::min(wanted, limit) + set_bytes - 1) / set_bytes);
}

std::byte* page_aligned(Buffer& arena, std::int64_t bytes) {
  const auto needed = static_cast<std::size_t>(bytes + kPageBytes);
  if (arena.size() < needed) {
    arena = Buffer();  // first, so that both never exist at once
    arena = Buffer(needed);
  }
  const auto misaligned = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(arena.data()) % kPageBytes);
  return arena.data() + (kPageBytes - misaligned) % kPageBytes;
}

void fill_pattern(std::byte* data, std::int64_t bytes, rn_type type, reference::Values values) {
  constexpr std::int64_t kElements = 1 << 14;
  Buffer pattern(static_cast<std::size_t>(kElements) * rn_type_size(type));
  reference::fill_row(pattern.data(), values, type, 1, reference::Stream::kX, 0, kElements);
  const auto step = static_cast<std::int64_t>(pattern.size());
  for (std::int64_t at = 0; at < bytes; at += step) {
    std::memcpy(data + at, pattern.data(), static_cast<std::size_t>(std::min(bytes - at, step)));
  }
}

void copy_lines(std::byte* out, const std::byte* in, const CopyShape& shape, std::int32_t threads, bool streaming) {
  const Target* target = active_target();
  if (target == nullptr) throw ToolError(ExitCode::kUnavailable, rn_last_error());
  const rn_execution execution{threads, nullptr, nullptr};
  CopyTask task{out,
                in,
                shape.lines,
                shape.line_bytes,
                shape.in_stride,
                thread_limit(execution),
                streaming ? target->stream_copy : nullptr};
  if (shape.lines * shape.line_bytes < threads * kPageBytes) task.pieces = 1;
  if (task.pieces == 1) return task.run(0);
  run_tasks(
      execution, task.pieces, [](void* data, std::int64_t piece) { static_cast<const CopyTask*>(data)->run(piece); },
      &task);
}

}  // namespace rmsnorm::tools
