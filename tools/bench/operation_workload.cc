#include "tools/bench/operation_workload.h"

#include <algorithm>
#include <cstring>

#include "tools/arguments.h"
#include "tools/bench/buffers.h"
#include "tools/operation_request.h"

namespace rmsnorm::tools {

namespace {

std::int64_t bytes_of(const check::Slot& slot) {
  std::int64_t bytes = static_cast<std::int64_t>(rn_type_size(slot.type));
  for (const std::int64_t size : slot.shape) bytes *= size;
  return bytes;
}

}  // namespace

std::int64_t OperationWorkload::bytes() const {
  std::int64_t total = 0;
  for (const check::Slot& slot : slots_of(*op, request)) total += bytes_of(slot);
  return total;
}

void OperationMemory::prepare(const OperationWorkload& w) {
  const std::vector<check::Slot> slots = slots_of(*w.op, w.request);
  copied_bytes_ = w.bytes() / 2;
  std::int64_t inputs = 0, outputs = 0;
  for (const check::Slot& slot : slots)
    (slot.role == check::Role::kInput ? inputs : outputs) += whole_pages(bytes_of(slot) + w.offset);
  // The copy reads from the inputs on and writes from the outputs on, each with room for its half of all bytes.
  const std::int64_t room = whole_pages(copied_bytes_ + w.offset);
  const std::int64_t read = std::max(inputs, room), written = std::max(outputs, room);
  const std::int64_t count = w.cache == Cache::kCold ? cold_sets(read + written) : 1;
  std::byte* next = page_aligned(arena_, count * (read + written));
  sets_.clear();
  sets_.resize(static_cast<std::size_t>(count));
  for (Set& set : sets_) {
    set.copied = next + w.offset;
    set.copy = next + read + w.offset;
    std::memset(next, 0, static_cast<std::size_t>(read + written));
    std::byte* in = set.copied;
    std::byte* out = set.copy;
    for (const check::Slot& slot : slots) {
      std::byte*& place = slot.role == check::Role::kInput ? in : out;
      if (slot.role == check::Role::kInput) fill_pattern(place, bytes_of(slot), slot.type, slot.values);
      check::Tensor tensor;
      tensor.slot = slot;
      set.tensors.all.push_back(std::move(tensor));
      set.tensors.elsewhere[std::string(slot.name)] = reinterpret_cast<char*>(place);
      place += whole_pages(bytes_of(slot) + w.offset);
    }
    check::give_scratch(*w.op, w.request, set.tensors);
    next += read + written;
  }
}

void OperationMemory::call(const OperationWorkload& w, std::size_t set) const {
  require(w.op->call(w.request, sets_[set].tensors, rn_execution{w.request.threads, nullptr, nullptr}));
}

void OperationMemory::copy(const OperationWorkload& w, std::size_t set, bool streaming) const {
  copy_bytes(sets_[set].copy, sets_[set].copied, copied_bytes_, w.request.threads, streaming);
}

std::optional<SeparateWork> OperationMemory::separate_work(const OperationWorkload& w, std::size_t set) const {
  SeparateWork work{w.op->name(), w.request.x, w.request.shape, {}, w.request.settings};
  if (!w.request.types.empty() || w.request.threads != 1 || !has_separate_form(work)) return {};
  for (const auto& [name, place] : sets_[set].tensors.elsewhere) work.operands[name] = place;
  return work;
}

}  // namespace rmsnorm::tools
