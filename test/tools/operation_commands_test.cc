// The operations of check/operation.h from the command line: their operands come from files and from the benchmark's
// memory, not from the tests'.
#include "check/operation.h"

#include <nlohmann/json.hpp>

#include "cli.h"

namespace rmsnorm::tools {
namespace {

using OperationCommands = Cli;

TEST_F(OperationCommands, bench_runs_every_one) {
  for (const check::Operation* op : check::operations()) {
    const std::string name(op->name());
    const Outcome outcome = run({"bench", name, "--shapes", "8x64", "--types", "f32", "--repeats", "5", "--json"});
    ASSERT_EQ(outcome.code, 0) << name << ": " << outcome.err;
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json["op"], name);
    EXPECT_GT(json["ns"], 0.0) << name;
  }
}

TEST_F(OperationCommands, check_runs_every_one) {
  for (const check::Operation* op : check::operations()) {
    std::string shape;
    for (const std::int64_t size : op->shape_for(4, 32)) shape += (shape.empty() ? "" : "x") + std::to_string(size);
    const Outcome outcome = run({"check", std::string(op->name()), "x=" + shape + ":bf16", "--json"});
    ASSERT_EQ(outcome.code, 0) << op->name() << ": " << outcome.err;
    EXPECT_TRUE(nlohmann::json::parse(outcome.out)["ok"]);
  }
}

// Two rows of two columns, epsilon 0: inv is 1 / 4 for (4, 4), and 1 for (1, 1).
TEST_F(OperationCommands, norm_takes_operands_by_name) {
  write_npy("x.npy", {2, 2}, {4, 4, 1, 1});
  write_npy("dy.npy", {2, 2}, {1, 0, 0, 2});
  write_npy("dw.npy", {2}, {10, 20});
  const std::vector<std::string> call = {"norm", "rms_norm_backward", "x.npy", "--dy", "dy.npy", "--epsilon", "0"};
  std::vector<std::string> both = call;
  both.insert(both.end(), {"-o", "dx.npy", "--dweight", "new.npy"});
  ASSERT_EQ(run(both).code, 0);
  EXPECT_EQ(read_floats("dx.npy"), (std::vector<float>{0.125F, -0.125F, -1, 1}));
  EXPECT_EQ(read_floats("new.npy"), (std::vector<float>{1, 2}));
  std::vector<std::string> added = call;
  added.insert(added.end(), {"-o", "dx.npy", "--dweight", "dw.npy", "--accumulate", "1"});
  ASSERT_EQ(run(added).code, 0);
  EXPECT_EQ(read_floats("dw.npy"), (std::vector<float>{11, 22}));
  expect_failure(call, 2, "-o OUT is missing; it must be given");
  expect_failure({"norm", "rms_norm_backward", "x.npy", "-o", "dx.npy"}, 2, "--dy is missing; it must be given");
  expect_failure({"norm", "rms_norm_backward", "x.npy", "--dy", "dw.npy", "-o", "dx.npy"}, 3,
                 "dy: shape is [2]; it must be [2, 2] where x is [2, 2]");
}

// Each gradient may be left out, the first one too.
TEST_F(OperationCommands, norm_leaves_out_what_is_not_asked_for) {
  write_npy("x.npy", {1, 2}, {1, 1});
  write_npy("gate.npy", {1, 2}, {0, 0});
  write_npy("dy.npy", {1, 2}, {1, 1});
  ASSERT_EQ(run({"norm", "gated_rms_norm_backward", "x.npy", "--gate", "gate.npy", "--dy", "dy.npy", "--epsilon", "0",
                 "--dgate", "dgate.npy"})
                .code,
            0);
  EXPECT_EQ(read_floats("dgate.npy"), (std::vector<float>{0.5F, 0.5F}));  // silu'(0)
}

TEST_F(OperationCommands, norm_of_q_takes_q_as_its_input) {
  write_npy("q.npy", {1, 1, 2}, {3, 3});
  const Outcome outcome = run({"norm", "qk_norm_rope", "q.npy", "--epsilon", "0", "-o", "out.npy"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(read_floats("out.npy"), (std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace rmsnorm::tools
