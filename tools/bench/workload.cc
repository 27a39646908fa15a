#include "tools/bench/workload.h"

#include <algorithm>
#include <cstring>

#include "cpu/target.h"
#include "cpu/threads.h"
#include "reference/values.h"
#include "tools/arguments.h"
#include "tools/error.h"
#include "tools/machine.h"

namespace rmsnorm::tools {

namespace {

constexpr std::int64_t kLeastRotation = std::int64_t{128} << 20;
constexpr std::int64_t kPageBytes = 4096;

std::int64_t size_of(rn_type type) { return static_cast<std::int64_t>(rn_type_size(type)); }

// Bytes from the first to the last element of x.
std::int64_t x_extent(const Workload& w) { return w.layout == Layout::kDense ? w.x_bytes() : 3 * w.x_bytes(); }

std::int64_t round_up(std::int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Elements to fill buffers with, again and again: making them takes much longer than copying them.
Buffer make_pattern(rn_type type, reference::Values values) {
  constexpr std::int64_t kElements = 1 << 14;
  Buffer pattern(static_cast<std::size_t>(kElements * size_of(type)));
  reference::fill_row(pattern.data(), values, type, 1, reference::Stream::kX, 0, kElements);
  return pattern;
}

void fill(std::byte* data, std::int64_t bytes, const Buffer& pattern) {
  const auto step = static_cast<std::int64_t>(pattern.size());
  for (std::int64_t at = 0; at < bytes; at += step) {
    std::memcpy(data + at, pattern.data(), static_cast<std::size_t>(std::min(bytes - at, step)));
  }
}

// A copy cut into pieces for threads. Rows of the packed layout are copied token by token, as they lie.
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

std::int64_t Workload::x_bytes() const { return rows * cols * size_of(type); }
std::int64_t Workload::out_bytes() const { return rows * cols * size_of(out_type); }

std::int64_t Workload::bytes() const {
  std::int64_t total = x_bytes() + out_bytes();
  if (check::is_add(op)) total += 2 * x_bytes();
  if (op != check::Op::kCenter) total += cols * size_of(weight_type);
  if (check::is_layer(op)) total += cols * size_of(weight_type);
  return total;
}

std::int64_t Workload::copied_bytes() const {
  return (x_bytes() + out_bytes()) / 2 * 2 + (check::is_add(op) ? 2 * x_bytes() : 0);
}

void WorkloadMemory::prepare(const Workload& w) {
  const std::int64_t room = round_up(std::max(x_extent(w), w.out_bytes()));
  const std::int64_t operands = check::is_add(w.op) ? 4 : 2;
  const std::int64_t set_bytes = room * operands;
  std::int64_t count = 1;
  if (w.cache == Cache::kCold) {
    const Machine machine = this_machine();
    const std::int64_t wanted = std::max(kLeastRotation, machine.l3_bytes) + 1;
    const std::int64_t limit = machine.available_bytes == 0 ? wanted : machine.available_bytes / 2;
    count = std::max<std::int64_t>(1, (std::min(wanted, limit) + set_bytes - 1) / set_bytes);
  }
  const auto needed = static_cast<std::size_t>(count * set_bytes + kPageBytes);
  if (arena_.size() < needed) {
    arena_ = Buffer();  // first, so that both never exist at once
    arena_ = Buffer(needed);
  }
  std::byte* next = arena_.data();
  next += (kPageBytes - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(next) % kPageBytes)) % kPageBytes;
  sets_.clear();
  const Buffer values = make_pattern(w.type, reference::Values::kNormal);
  for (std::int64_t i = 0; i < count; ++i) {
    BufferSet set;
    set.x = next;
    set.out = next + room;
    fill(set.x, x_extent(w), values);
    std::memset(set.out, 0, static_cast<std::size_t>(room));
    if (check::is_add(w.op)) {
      set.residual = next + 2 * room;
      set.residual_out = next + 3 * room;
      fill(set.residual, w.x_bytes(), values);
      std::memset(set.residual_out, 0, static_cast<std::size_t>(room));
    }
    next += set_bytes;
    sets_.push_back(set);
  }
  const std::int64_t parameter_bytes = w.cols * size_of(w.weight_type);
  weight_ = Buffer(static_cast<std::size_t>(parameter_bytes));
  bias_ = Buffer(static_cast<std::size_t>(parameter_bytes));
  fill(weight_.data(), parameter_bytes, make_pattern(w.weight_type, reference::Values::kWeight));
  fill(bias_.data(), parameter_bytes, make_pattern(w.weight_type, reference::Values::kNormal));
}

void call_workload(const Workload& w, const BufferSet& set, const std::byte* weight, const std::byte* bias) {
  const auto view = [&](std::byte* data, rn_type type, bool packed) {
    if (w.layout == Layout::kDense) return rn_matrix(data, type, w.rows, w.cols);
    const std::int64_t shape[] = {w.rows / kQkvHeads, kQkvHeads, w.cols};
    rn_view v = rn_tensor(data, type, 3, shape);
    if (packed) v.strides[0] = 3 * kQkvHeads * w.cols;
    return v;
  };
  const rn_view x = view(set.x, w.type, true);
  const rn_view out = view(set.out, w.out_type, false);
  const rn_view residual = view(set.residual, w.type, false);
  const rn_view sum = view(set.residual_out, w.type, false);
  const rn_view scale = rn_vector(const_cast<std::byte*>(weight), w.weight_type, w.cols);
  const rn_view shift = rn_vector(const_cast<std::byte*>(bias), w.weight_type, w.cols);
  const rn_execution execution{w.threads, nullptr, nullptr};
  switch (w.op) {
    case check::Op::kRmsNorm:
      return require(rn_rms_norm(&out, nullptr, &x, &scale, nullptr, nullptr, &execution));
    case check::Op::kLayerNorm:
      return require(rn_layer_norm(&out, nullptr, nullptr, &x, &scale, &shift, nullptr, &execution));
    case check::Op::kAddRmsNorm:
      return require(rn_add_rms_norm(&out, &sum, nullptr, &x, &residual, &scale, nullptr, nullptr, &execution));
    case check::Op::kAddLayerNorm:
      return require(
          rn_add_layer_norm(&out, &sum, nullptr, nullptr, &x, &residual, &scale, &shift, nullptr, &execution));
    case check::Op::kCenter:
      return require(rn_center(&out, &x, &execution));
  }
}

void copy_workload(const Workload& w, const BufferSet& set, bool streaming) {
  const rn_execution execution{w.threads, nullptr, nullptr};
  const Target* target = active_target();
  if (target == nullptr) throw ToolError(ExitCode::kUnavailable, rn_last_error());
  const auto run = [&](std::byte* out, const std::byte* in, std::int64_t bytes, bool packed) {
    const std::int64_t lines = packed ? w.rows / kQkvHeads : 1;
    // As the library's rule: too few bytes wake no thread.
    CopyTask task{out,
                  in,
                  lines,
                  bytes / lines,
                  3 * (bytes / lines),
                  thread_limit(execution),
                  streaming ? target->stream_copy : nullptr};
    if (bytes < w.threads * kPageBytes) task.pieces = 1;
    if (task.pieces == 1) return task.run(0);
    run_tasks(
        execution, task.pieces, [](void* data, std::int64_t piece) { static_cast<const CopyTask*>(data)->run(piece); },
        &task);
  };
  run(set.out, set.x, (w.x_bytes() + w.out_bytes()) / 2, w.layout == Layout::kPackedQkv);
  if (check::is_add(w.op)) run(set.residual_out, set.residual, w.x_bytes(), false);
}

}  // namespace rmsnorm::tools
