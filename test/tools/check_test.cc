// rmsnorm check: the line that a failing test prints, and the hashes of all targets.
#include <nlohmann/json.hpp>

#include <set>
#include <sstream>

#include "cli.h"

namespace rmsnorm::tools {
namespace {

using CheckCommand = Cli;

TEST_F(CheckCommand, prints_its_case_and_the_error) {
  const Outcome outcome = run({"check", "rms_norm", "x=3x70:f32@stride=77,offset=3,values=spike,seed=5", "w=bf16",
                               "b=f32", "--epsilon", "0", "--target", "scalar", "--threads", "2"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("rmsnorm check rms_norm x=3x70:f32@stride=77,offset=3,values=spike,seed=5 w=bf16 b=f32 "
                             "out=f32 --epsilon 0 --target scalar --threads 2\n"),
            0u)
      << outcome.out;
  EXPECT_NE(outcome.out.find("target scalar: max "), std::string::npos) << outcome.out;
}

TEST_F(CheckCommand, every_operation_and_option) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"rms_norm", "x=2x64:bf16", "--rounding", "before_weight", "--partial", "10"},
        {"rms_norm", "x=2x64", "--rounding", "exact", "--weight-offset", "1", "--in-place"},
        {"layer_norm", "x=2x64:f16@values=offset", "w=f32", "b=f32"},
        {"add_rms_norm", "x=2x64:bf16", "residual=f32", "residual_out=f32", "--norm-input", "unrounded"},
        {"add_layer_norm", "x=2x64:f64"},
        {"center", "x=2x64:f16", "out=f32"}}) {
    std::vector<std::string> line{"check", "--json"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run(line);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT_TRUE(json["ok"]);
    EXPECT_LE(json["max_ulp"], json["budget_ulp"]);
    EXPECT_GT(json["exact_share"], 0.0);
  }
}

TEST_F(CheckCommand, mistakes) {
  expect_failure({"check"}, 2, "OP is missing");
  expect_failure({"check", "rms_norm"}, 2, "it must be x=ROWSxCOLS");
  expect_failure({"check", "rms_norm", "w=f32"}, 2, "it must be x=ROWSxCOLS");
  expect_failure({"check", "rms_norm", "x=0"}, 2, "ROWSxCOLS");
  expect_failure({"check", "rms_norm", "x=2x0"}, 2, "ROWSxCOLS");
  expect_failure({"check", "rms_norm", "x=2x8:f8"}, 2, "f32, f16, bf16 or f64");
  expect_failure({"check", "rms_norm", "x=2x8:f32@values=odd"}, 2, "one of normal");
  expect_failure({"check", "rms_norm", "x=2x8:f32@stride=7"}, 2, "at least the columns");
  expect_failure({"check", "rms_norm", "x=2x8:f32", "y=f32"}, 2, "y=f32");
  expect_failure({"check", "rms_norm", "x=2x8:f32", "out=f64"}, 3, "f64");
  expect_failure({"check", "rms_norm", "x=2x8:bf16", "out=f32", "--in-place"}, 2, "--in-place");
  expect_failure({"check", "rms_norm", "x=2x8:f32", "--bits"}, 2, "with --bits");
}

TEST_F(CheckCommand, bits_are_the_same_for_targets_and_threads) {
  std::set<std::string> hashes;
  for (const char* threads : {"1", "3"}) {
    const Outcome outcome = run({"check", "--bits", "--threads", threads});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::istringstream lines(outcome.out);
    int targets = 0;
    for (std::string name, hash; lines >> name >> hash; ++targets) {
      EXPECT_EQ(hash.size(), 16u);
      hashes.insert(hash);
    }
    EXPECT_GE(targets, 2);
  }
  EXPECT_EQ(hashes.size(), 1u);
}

}  // namespace
}  // namespace rmsnorm::tools
