// The soak finds what is wrong, finds nothing else, and repeats itself.
#include "lab/soak/soak.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "check/case.h"
#include "check/operation.h"

namespace rmsnorm::lab {
namespace {

TEST(Soak, cases_follow_from_the_seed) {
  std::set<std::string> lines, others;
  for (std::int64_t number = 0; number < 500; ++number) {
    const std::string line = soak_case_line(7, number);
    EXPECT_EQ(line, soak_case_line(7, number));
    lines.insert(line);
    others.insert(soak_case_line(8, number));
  }
  EXPECT_GT(lines.size(), 490u);  // hardly one twice
  for (const std::string& line : lines) EXPECT_FALSE(others.contains(line)) << line;
}

TEST(Soak, cases_are_of_every_kind) {
  std::string all;
  for (std::int64_t number = 0; number < 2000; ++number) all += soak_case_line(1, number) + " \n";
  for (const check::Op op : check::kAllOps)
    EXPECT_NE(all.find(" " + std::string(name_of(op)) + " "), std::string::npos);
  for (const check::Operation* op : check::operations()) {
    EXPECT_NE(all.find(" " + std::string(op->name()) + " "), std::string::npos) << op->name();
  }
  for (const auto& named : reference::kNamedValues) {
    if (named.values == reference::Values::kNormal) continue;  // the default is not written
    EXPECT_NE(all.find("values=" + std::string(named.name)), std::string::npos) << named.name;
  }
  for (std::int32_t i = 0; i < rn_target_count(); ++i) {
    if (!rn_target_supported(i)) continue;
    EXPECT_NE(all.find(std::string("--target ") + rn_target_name(i) + " "), std::string::npos) << rn_target_name(i);
  }
  for (const char* part : {":f32", ":f16", ":bf16", ":f64", "stride=", "padding=", "offset=", "--threads 8",
                           "--in-place", "--partial", "--rounding exact", "--epsilon 0 "}) {
    EXPECT_NE(all.find(part), std::string::npos) << part;
  }
}

TEST(Soak, finds_no_fault_in_the_first_cases) {
  const std::string target = rn_target();
  const SoakResult result = soak({.seconds = 60, .seed = 3, .last_case = 400});
  for (const SoakFault& fault : result.faults) ADD_FAILURE() << fault.line << "\n" << fault.error;
  EXPECT_EQ(result.cases, 401);
  EXPECT_GT(result.elements, 20000);
  EXPECT_EQ(rn_target(), target);
}

TEST(Soak, finds_a_changed_bit_and_names_its_case) {
  int found = 0;
  for (std::int64_t number = 0; number < 40; ++number) {
    const SoakResult result = soak({.seconds = 60, .seed = 5, .spoiled = number, .last_case = number});
    if (result.faults.empty()) continue;
    ++found;
    ASSERT_EQ(result.faults.size(), 1u);
    EXPECT_EQ(result.faults[0].number, number);
    EXPECT_EQ(result.faults[0].line, soak_case_line(5, number));
    EXPECT_FALSE(result.faults[0].error.empty());
  }
  EXPECT_GE(found, 30);  // in some results bit 6 is far below the limit (f64), or a NaN stays one
}

TEST(Soak, stops_after_many_faults_and_when_the_time_is_up) {
  const SoakResult result = soak({.seconds = 0.2, .seed = 1});
  EXPECT_GE(result.seconds, 0.2);
  EXPECT_LT(result.seconds, 5);
  EXPECT_GE(result.memory.size(), 2u);
  EXPECT_GT(result.memory[0].resident, 1e6);
}

TEST(Soak, memory_that_grows_is_seen) {
  std::vector<MemorySample> samples;
  for (int i = 0; i < 40; ++i) samples.push_back({i * 1.0, 1e8 + (i < 8 ? i * 1e7 : 8e7), 1e6});
  EXPECT_EQ(growth(samples).resident, 0);  // the warm-up does not count
  EXPECT_FALSE(growth(samples).leaks());
  for (int i = 0; i < 40; ++i) samples[static_cast<std::size_t>(i)].allocated += i * 1e5;
  EXPECT_NEAR(growth(samples).allocated, 20 * 1e5, 1);
  EXPECT_TRUE(growth(samples).leaks());
  EXPECT_EQ(growth({}).resident, 0);
}

// The line of a case is one that `rmsnorm check` takes.
TEST(Soak, lines_run_again) {
#ifdef RMSNORM_LAB_CHECK_PROGRAM
  for (std::int64_t number = 0; number < 12; ++number) {
    std::string line = soak_case_line(11, number);
    ASSERT_TRUE(line.starts_with("rmsnorm check "));
    line.replace(0, 7, "'" RMSNORM_LAB_CHECK_PROGRAM "'");
    EXPECT_EQ(std::system((line + " > /dev/null").c_str()), 0) << line;
  }
#else
  GTEST_SKIP() << "the command line is not part of this build";
#endif
}

}  // namespace
}  // namespace rmsnorm::lab
