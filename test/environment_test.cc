// The caller's floating-point environment changes no bit and comes back as it was: rounding direction, flush-to-zero.
#include <gtest/gtest.h>

#include <cfenv>

#include "check/operands.h"
#include "support/environment.h"
#include "support/outcome.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rmsnorm::test {
namespace {

using check::Case;
using check::Op;

// The control register, as a number.
std::uint64_t control() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu;  // without the exception flags
#elif defined(__aarch64__)
  std::uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
#else
  return static_cast<std::uint64_t>(std::fegetround());
#endif
}

void set_control(std::uint64_t value) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(value));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(value));
#else
  std::fesetround(static_cast<int>(value));
#endif
}

// Settings that callers are known to leave behind.
std::vector<std::uint64_t> settings() {
  const std::uint64_t plain = control();
#if defined(__x86_64__)
  constexpr std::uint64_t kFlushToZero = 0x8000, kDenormalsAreZero = 0x40, kDown = 0x2000, kUp = 0x4000, kZero = 0x6000;
  return {plain | kFlushToZero | kDenormalsAreZero, plain | kDown, plain | kUp, plain | kZero,
          plain | kZero | kFlushToZero};
#elif defined(__aarch64__)
  constexpr std::uint64_t kFlushToZero = 1 << 24, kUp = 1 << 22, kDown = 2 << 22, kZero = 3 << 22;
  return {plain | kFlushToZero, plain | kDown, plain | kUp, plain | kZero, plain | kZero | kFlushToZero};
#else
  return {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
#endif
}

class Environment : public testing::TestWithParam<std::tuple<Op, rn_type>> {};

TEST_P(Environment, ChangesNoBitAndIsRestored) {
  const auto [op, type] = GetParam();
  for (const std::string& target : supported_targets()) {
    const UseTarget use(target);
    for (const auto& [rows, cols, values] :
         {std::tuple<std::int64_t, std::int64_t, reference::Values>{5, 67, reference::Values::kTiny},
          {7, 1000, reference::Values::kNormal},
          {3, 130, reference::Values::kSubnormal},
          {600, 700, reference::Values::kCauchy}}) {
      if (rows > 100 && (reduced() || target != supported_targets().front())) continue;
      const AsIfLarge large;  // for threads
      Case c = check::make_case(op, type, rows, cols);
      c.values = values;
      c.threads = 2;
      c.epsilon = 0;
      if (op != Op::kCenter) c.weight = c.bias = RN_F32;
      const check::Operands plain(c);
      ASSERT_EQ(check::call(c, plain), RN_OK) << rn_last_error();
      const std::uint64_t expected = outcome(c, plain);
      const std::uint64_t before = control();
      for (const std::uint64_t setting : settings()) {
        const check::Operands o(c, plain);
        set_control(setting);
        const rn_status status = check::call(c, o);
        const std::uint64_t after = control();
        set_control(before);
        ASSERT_EQ(status, RN_OK) << rn_last_error();
        EXPECT_EQ(after, setting) << "not restored: " << check::command_line(c);
        EXPECT_EQ(outcome(c, o), expected) << std::hex << setting << ": " << check::command_line(c);
        if (reduced()) break;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Environment,
                         testing::Combine(testing::ValuesIn(check::kAllOps),
                                          testing::Values(RN_F32, RN_F16, RN_BF16, RN_F64)),
                         [](const auto& instance) {
                           return std::string(check::name_of(std::get<0>(instance.param))) + "_" +
                                  rn_type_name(std::get<1>(instance.param));
                         });

}  // namespace
}  // namespace rmsnorm::test
