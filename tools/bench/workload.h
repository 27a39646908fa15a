// One benchmark case and its memory.
#ifndef RMSNORM_TOOLS_BENCH_WORKLOAD_H_
#define RMSNORM_TOOLS_BENCH_WORKLOAD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "check/case.h"
#include "tools/bench/separate.h"
#include "tools/formats/tensor.h"

namespace rmsnorm::tools {

enum class Layout {
  kDense,
  kPackedQkv,  // x is Q inside packed Q, K and V: [tokens, heads, cols] with a token stride of 3 * heads * cols
};
enum class Cache { kWarm, kCold };

inline constexpr std::int64_t kQkvHeads = 32;

struct Workload {
  check::Op op = check::Op::kRmsNorm;
  rn_type type = RN_F32;
  rn_type weight_type = RN_F32;
  rn_type out_type = RN_F32;
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  Layout layout = Layout::kDense;
  std::int32_t threads = 1;
  Cache cache = Cache::kWarm;
  std::int64_t offset = 0;  // bytes from the start of a page to x, residual, out and residual_out

  std::int64_t x_bytes() const;  // of the elements of x, without what lies between them
  std::int64_t out_bytes() const;
  std::int64_t bytes() const;         // every operand read and written once
  std::int64_t copied_bytes() const;  // read and written by the copy that it is compared with
};

// The operands of one call.
struct BufferSet {
  std::byte* x = nullptr;
  std::byte* residual = nullptr;
  std::byte* out = nullptr;
  std::byte* residual_out = nullptr;
};

// As many sets as the case wants: one when warm; when cold so many that together they are larger than the last-level
// cache. The memory is kept from case to case, because fresh pages cost more than a norm.
class WorkloadMemory {
 public:
  void prepare(const Workload& workload);
  const std::vector<BufferSet>& sets() const { return sets_; }
  std::byte* weight() { return weight_.data(); }
  std::byte* bias() { return bias_.data(); }

 private:
  Buffer arena_, weight_, bias_;
  std::vector<BufferSet> sets_;
};

// One call of the library.
void call_workload(const Workload& workload, const BufferSet& set, const std::byte* weight, const std::byte* bias);

// The copy of the same bytes, by memcpy or by the streaming stores of the target in use, on as many threads.
void copy_workload(const Workload& workload, const BufferSet& set, bool streaming);

// What separate calls work on that replace one of these; nothing where they do not exist.
std::optional<SeparateWork> separate_work(const Workload& workload, const BufferSet& set, std::byte* weight,
                                          std::byte* bias);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_BENCH_WORKLOAD_H_
