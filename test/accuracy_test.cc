// Every operation and type against the exact result, with the budgets of reference/budgets.h. Prints what was measured;
// `accuracy_test --markdown=FILE` also writes the tables of docs/numbers.md.
#include <gtest/gtest.h>

#include "check/judge.h"
#include "support/accuracy_table.h"
#include "support/cases.h"
#include "support/environment.h"

namespace rmsnorm::test {
namespace {

using check::Case;
using check::Op;

class Accuracy : public testing::TestWithParam<std::tuple<Op, rn_type>> {};

TEST_P(Accuracy, MeetsTheBudgets) {
  const auto [op, type] = GetParam();
  const std::string before = rn_target();
  AccuracyTable table;
  int failures = 0;
  for (const Case& c : covering_cases(op, type)) {
    const check::Report report = check::run(c);
    table.add(c, report);
    if (report.ok()) continue;
    if (++failures <= 20) ADD_FAILURE() << check::command_line(c) << "\n    " << report.error;
  }
  EXPECT_EQ(failures, 0);
  for (const std::string& line : table.means_beyond(reference::kMean)) ADD_FAILURE() << line;
  table.print();
  AccuracyTable::all().merge(table);
  rn_use_target(before.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, Accuracy,
                         testing::Combine(testing::ValuesIn(check::kAllOps),
                                          testing::Values(RN_F32, RN_F16, RN_BF16, RN_F64)),
                         [](const auto& instance) {
                           return std::string(check::name_of(std::get<0>(instance.param))) + "_" +
                                  rn_type_name(std::get<1>(instance.param));
                         });

// The longest rows of the contract.
TEST(AccuracyOfLongRows, MeetsTheBudgets) {
  const std::int64_t cols = reduced() ? (1 << 15) + 5 : 1 << 20;
  for (const Op op : check::kAllOps) {
    for (const rn_type type : {RN_F32, RN_BF16, RN_F64}) {
      Case c = check::make_case(op, type, 1, cols);
      if (op != Op::kCenter) c.weight = type;
      c.threads = 2;
      const check::Report report = check::run(c);
      EXPECT_TRUE(report.ok()) << check::command_line(c) << "\n    " << report.error;
      if (reduced()) break;
    }
  }
}

}  // namespace
}  // namespace rmsnorm::test

int main(int argc, char** argv) {
  return rmsnorm::test::run_and_write(
      argc, argv, [](const std::string& path) { return rmsnorm::test::AccuracyTable::all().write_markdown(path); });
}
