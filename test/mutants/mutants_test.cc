// Tests of the tests: a few cases of each kind must pass with the kernels as they are, and one of them must fail with
// each known bug.
#include "mutants/mutants.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "check/judge.h"
#include "check/operation.h"
#include "support/environment.h"

namespace rmsnorm {

Mutant active_mutant = Mutant::kNone;

namespace test {
namespace {

using check::Case;
using check::Op;
using reference::Values;

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Op op : check::kAllOps) {
    for (const rn_type type : {RN_F32, RN_F16, RN_BF16}) {
      for (const Values values : {Values::kNormal, Values::kOffset, Values::kHuge, Values::kTiny}) {
        Case c = check::make_case(op, type, 2, 131);
        c.values = values;
        if (is_layer(op) && values == Values::kTiny) continue;
        if (op != Op::kCenter) c.weight = type == RN_F16 ? RN_F32 : type;
        list.push_back(c);
        if (!is_rms(op)) continue;
        c.rounding = RN_ROUND_BEFORE_WEIGHT;
        c.partial = 50;
        list.push_back(c);
        c.rounding = RN_ROUND_EXACT;
        c.epsilon = 0.1;
        list.push_back(c);
      }
    }
  }
  return list;
}

// "" or the line of the first case of an operation described as data that fails.
std::string first_failing_operation() {
  for (const check::Operation* op : check::operations()) {
    for (const rn_type type : {RN_F32, RN_BF16}) {
      std::vector<check::Request> requests = op->variants(type);
      if (op->name().starts_with("gated")) {
        requests.push_back(requests.front());
        requests.back().settings["groups"] = 3;
      }
      for (check::Request& r : requests) {
        r.shape = op->shape_for(4, 132);
        const check::Tensors tensors = check::make_tensors(*op, r);
        if (check::call(*op, r, tensors) != RN_OK) return check::command_line(*op, r) + ": " + rn_last_error();
        const std::string error = op->judge(r, tensors).error;
        if (!error.empty()) return check::command_line(*op, r) + ": " + error;
      }
    }
  }
  return "";
}

// Rows a little more than 2^32 bytes apart, in memory that is not there until it is written to.
bool far_rows_are_right() {
  constexpr std::int64_t kStride = (std::int64_t{1} << 30) + 16, kRows = 2, kCols = 8;
  constexpr std::size_t kBytes = static_cast<std::size_t>(kStride + kCols) * sizeof(float);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  float* x = static_cast<float*>(memory);
  for (std::int64_t i = 0; i < kCols; ++i) x[kStride + i] = 3;
  float out[kRows * kCols] = {};
  rn_view in = rn_matrix(x, RN_F32, kRows, kCols);
  in.strides[0] = kStride;
  const rn_view o = rn_matrix(out, RN_F32, kRows, kCols);
  const bool good = rn_rms_norm(&o, nullptr, &in, nullptr, nullptr, nullptr, nullptr) == RN_OK && out[0] == 0 &&
                    out[kCols] > 0.99f && out[kCols] < 1.01f;
  munmap(memory, kBytes);
  return good;
}

// The mean of what is left when large numbers cancel: 30 of 32 columns are 2^-33.
bool cancelling_rows_are_right() {
  constexpr std::int64_t kCols = 32;
  float x[kCols] = {0x1p83f, -0x1p83f}, out[kCols] = {};
  for (std::int64_t i = 2; i < kCols; ++i) x[i] = 0x1p-33f;
  const rn_view in = rn_matrix(x, RN_F32, 1, kCols), o = rn_matrix(out, RN_F32, 1, kCols);
  return rn_center(&o, &in, nullptr) == RN_OK && out[0] == 0x1p83f && out[2] == 0x1p-37f;
}

// "" or the line of the first case that fails.
std::string first_failure() {
  const UseTarget use("scalar");
  for (const Case& c : cases()) {
    const check::Report report = check::run(c);
    if (!report.ok()) return check::command_line(c) + ": " + report.error;
  }
  if (!far_rows_are_right()) return "rows 2^32 bytes apart";
  if (!cancelling_rows_are_right()) return "a row of which large numbers cancel";
  return first_failing_operation();
}

TEST(Mutants, NoneIsGood) {
  active_mutant = Mutant::kNone;
  EXPECT_EQ(first_failure(), "");
}

class Mutants : public testing::TestWithParam<int> {};

TEST_P(Mutants, IsCaught) {
  active_mutant = static_cast<Mutant>(GetParam());
  const std::string failure = first_failure();
  active_mutant = Mutant::kNone;
  EXPECT_NE(failure, "") << "no test sees mutant " << GetParam();
  std::printf("caught by %s\n", failure.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, Mutants, testing::Range(1, static_cast<int>(Mutant::kEnd)));

}  // namespace
}  // namespace test
}  // namespace rmsnorm
