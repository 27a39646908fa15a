// One benchmark case of an operation of check/operation.h, and its memory.
#ifndef RMSNORM_TOOLS_BENCH_OPERATION_WORKLOAD_H_
#define RMSNORM_TOOLS_BENCH_OPERATION_WORKLOAD_H_

#include <cstdint>
#include <vector>

#include "check/operation.h"
#include "tools/bench/workload.h"

namespace rmsnorm::tools {

struct OperationWorkload {
  const check::Operation* op;
  check::Request request;
  Cache cache = Cache::kWarm;
  std::int64_t offset = 0;  // bytes from the start of a page to each operand

  std::int64_t bytes() const;  // every operand read and written once
};

// Buffers for one call and for a copy that moves as many bytes; several of each when cold (see WorkloadMemory).
class OperationMemory {
 public:
  void prepare(const OperationWorkload& workload);
  std::size_t sets() const { return sets_.size(); }

  void call(const OperationWorkload& workload, std::size_t set) const;
  void copy(const OperationWorkload& workload, std::size_t set, bool streaming) const;

  // As for the forward norms.
  std::optional<SeparateWork> separate_work(const OperationWorkload& workload, std::size_t set) const;

 private:
  struct Set {
    check::Tensors tensors;
    std::byte* copied = nullptr;
    std::byte* copy = nullptr;
  };
  Buffer arena_;
  std::int64_t copied_bytes_ = 0;
  std::vector<Set> sets_;
};

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_BENCH_OPERATION_WORKLOAD_H_
