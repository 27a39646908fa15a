#include "tools/bench/workload.h"

#include <algorithm>
#include <cstring>

#include "reference/values.h"
#include "tools/arguments.h"
#include "tools/bench/buffers.h"

namespace rmsnorm::tools {

namespace {

std::int64_t size_of(rn_type type) { return static_cast<std::int64_t>(rn_type_size(type)); }

// Bytes from the first to the last element of x.
std::int64_t x_extent(const Workload& w) { return w.layout == Layout::kDense ? w.x_bytes() : 3 * w.x_bytes(); }

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
  const std::int64_t room = whole_pages(std::max(x_extent(w), w.out_bytes()) + w.offset);
  const std::int64_t operands = check::is_add(w.op) ? 4 : 2;
  const std::int64_t set_bytes = room * operands;
  const std::int64_t count = w.cache == Cache::kCold ? cold_sets(set_bytes) : 1;
  std::byte* next = page_aligned(arena_, count * set_bytes) + w.offset;
  sets_.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    BufferSet set;
    set.x = next;
    set.out = next + room;
    fill_pattern(set.x, x_extent(w), w.type, reference::Values::kNormal);
    std::memset(set.out, 0, static_cast<std::size_t>(w.out_bytes()));
    if (check::is_add(w.op)) {
      set.residual = next + 2 * room;
      set.residual_out = next + 3 * room;
      fill_pattern(set.residual, w.x_bytes(), w.type, reference::Values::kNormal);
      std::memset(set.residual_out, 0, static_cast<std::size_t>(w.x_bytes()));
    }
    next += set_bytes;
    sets_.push_back(set);
  }
  const std::int64_t parameter_bytes = w.cols * size_of(w.weight_type);
  weight_ = Buffer(static_cast<std::size_t>(parameter_bytes));
  bias_ = Buffer(static_cast<std::size_t>(parameter_bytes));
  fill_pattern(weight_.data(), parameter_bytes, w.weight_type, reference::Values::kWeight);
  fill_pattern(bias_.data(), parameter_bytes, w.weight_type, reference::Values::kNormal);
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
  const std::int64_t bytes = (w.x_bytes() + w.out_bytes()) / 2;
  // Rows of the packed layout are copied token by token, as they lie.
  const std::int64_t lines = w.layout == Layout::kPackedQkv ? w.rows / kQkvHeads : 1;
  copy_lines(set.out, set.x, {lines, bytes / lines, 3 * (bytes / lines)}, w.threads, streaming);
  if (check::is_add(w.op)) copy_bytes(set.residual_out, set.residual, w.x_bytes(), w.threads, streaming);
}

std::optional<SeparateWork> separate_work(const Workload& w, const BufferSet& set, std::byte* weight, std::byte* bias) {
  const bool one_type = w.weight_type == w.type && w.out_type == w.type;
  SeparateWork work{check::name_of(w.op), w.type, {w.rows, w.cols}, {}, {}};
  if (!one_type || w.layout != Layout::kDense || w.threads != 1 || !has_separate_form(work)) return {};
  work.operands = {{"out", set.out},   {"residual_out", set.residual_out},
                   {"x", set.x},       {"residual", set.residual},
                   {"weight", weight}, {"bias", bias}};
  return work;
}

}  // namespace rmsnorm::tools
