// The work of one fused call done by separate calls, as a program does it that has only the norms: rms_norm, layer_norm
// and their dx from this library, and plain loops, vectorised by the compiler, for every other step. Between the steps
// the numbers lie in memory in the type of x.
#ifndef RMSNORM_TOOLS_BENCH_SEPARATE_H_
#define RMSNORM_TOOLS_BENCH_SEPARATE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rmsnorm/rmsnorm.h"
#include "tools/formats/tensor.h"

namespace rmsnorm::tools {

// What both ways work on: dense operands by the names of the header, all of one type but the saved statistics, scales
// and the rotary table, which are f32; and the settings that are not the operation's defaults.
struct SeparateWork {
  std::string_view op;
  rn_type type = RN_F32;
  std::vector<std::int64_t> shape;  // of x
  std::map<std::string, void*, std::less<>> operands;
  std::map<std::string, double, std::less<>> settings;
};

// Names of the operations that have a separate form.
std::vector<std::string_view> separate_operations();

// f32 and bf16, with one thread and the default settings; of the gated norm either gate order.
bool has_separate_form(const SeparateWork& work);

// The sequence of calls; it leaves in the outputs what the fused call does, but for roundings. `between` holds what
// lies between the steps. It must outlive the sequence, and sequences that do not run at once may share it.
std::function<void()> separate_calls(const SeparateWork& work, Buffer& between);

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_BENCH_SEPARATE_H_
