// What `rmsnorm bench --separate` times beside a fused call does the same work: its outputs are those of the fused call,
// but for the roundings between the steps.
#include "tools/bench/separate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "check/case.h"
#include "check/operation.h"

namespace rmsnorm::tools {
namespace {

using check::Matrix;

constexpr std::int64_t kRows = 36, kCols = 200;

// An output of the fused call, and the same of the separate calls.
struct Output {
  std::string name;
  Matrix fused, separate;
};

struct Both {
  SeparateWork work;
  std::vector<Output> outputs;
  std::vector<Matrix> inputs;

  void input(std::string_view name, const Matrix& matrix) {
    if (!matrix.present()) return;
    inputs.push_back(matrix.copy());
    work.operands[std::string(name)] = inputs.back().row(0);
  }
  void output(std::string_view name, const Matrix& matrix, rn_type type) {
    Matrix own(type, matrix.rows(), matrix.cols(), matrix.cols(), 0);
    own.fill(reference::Values::kNan, 1, reference::Stream::kX);
    outputs.push_back({std::string(name), matrix.copy(), std::move(own)});
    work.operands[std::string(name)] = outputs.back().separate.row(0);
  }
};

Both norm(check::Op op, rn_type type) {
  check::Case c = check::make_case(op, type, kRows, kCols);
  c.weight = type;
  if (check::is_layer(op)) c.bias = type;
  const check::Operands operands(c);
  EXPECT_EQ(check::call(c, operands), RN_OK) << rn_last_error();
  Both both{{check::name_of(op), type, {kRows, kCols}, {}, {}}, {}, {}};
  both.input("x", operands.x);
  both.input("residual", operands.residual);
  both.input("weight", operands.weight);
  both.input("bias", operands.bias);
  both.output("out", operands.out, type);
  both.output("residual_out", operands.residual_out, type);
  return both;
}

Both described(const check::Operation& op, rn_type type, double gate_order) {
  check::Request request;
  request.x = type;
  request.shape = op.shape_for(kRows, kCols);
  if (op.name() == "gated_rms_norm") request.settings["gate_order"] = gate_order;
  const check::Tensors tensors = check::make_tensors(op, request);
  EXPECT_EQ(check::call(op, request, tensors), RN_OK) << rn_last_error();
  Both both{{op.name(), type, request.shape, {}, request.settings}, {}, {}};
  for (const check::Tensor& t : tensors.all) {
    if (t.slot.role == check::Role::kInput) both.input(t.slot.name, t.matrix);
    if (t.slot.role == check::Role::kOutput) both.output(t.slot.name, t.matrix, t.slot.type);
  }
  return both;
}

// In f32 the sums of the plain loops are shorter than the library's; in bf16 what lies between the steps is rounded once
// more. Codes may be the next one. Where the last step adds, errors count beside the row's largest number.
double tolerance(const SeparateWork& work, const std::string& output, rn_type type, double value, double largest) {
  if (type == RN_I8) return 1;
  const double epsilon = work.type == RN_F32 ? 0x1p-23 : 0x1p-8;
  const double roundings = work.type == RN_F32 ? 8 : 3;
  const bool sums_rows = output == "dweight" || output == "dbias";
  const bool adds = sums_rows || work.op == "qk_norm_rope" || work.op == "add_rms_norm_backward";
  const double rows = sums_rows ? kRows * 0x1p-23 : 0;
  return roundings * epsilon * (adds ? largest : std::fabs(value)) + rows * largest + 0x1p-126;
}

void expect_the_same(Both both) {
  const std::string name = std::string(both.work.op) + " " + rn_type_name(both.work.type);
  ASSERT_TRUE(has_separate_form(both.work)) << name;
  Buffer between;
  separate_calls(both.work, between)();
  for (const Output& output : both.outputs) {
    const auto cols = static_cast<std::size_t>(output.fused.cols());
    std::vector<double> fused(cols), separate(cols);
    for (std::int64_t row = 0; row < output.fused.rows(); ++row) {
      output.fused.read_row(row, fused.data());
      output.separate.read_row(row, separate.data());
      double largest = 0;
      for (const double v : fused) largest = std::max(largest, std::fabs(v));
      for (std::size_t i = 0; i < cols; ++i) {
        const double allowed = tolerance(both.work, output.name, output.fused.type(), fused[i], largest);
        ASSERT_LE(std::fabs(fused[i] - separate[i]), allowed)
            << name << ": " << output.name << "[" << row << "][" << i << "] is " << separate[i]
            << " after separate calls, " << fused[i] << " after the fused one";
      }
    }
    EXPECT_TRUE(output.separate.fences_intact()) << name << ": " << output.name;
  }
}

TEST(SeparateCalls, leave_what_the_fused_call_leaves) {
  int count = 0;
  for (const rn_type type : {RN_F32, RN_BF16}) {
    for (const std::string_view name : separate_operations()) {
      ++count;
      if (const auto op = check::op_named(name)) {
        expect_the_same(norm(*op, type));
        continue;
      }
      const check::Operation* const op = check::operation_named(name);
      ASSERT_NE(op, nullptr) << name;
      expect_the_same(described(*op, type, 0));
      if (name == "gated_rms_norm") expect_the_same(described(*op, type, 1));
    }
  }
  EXPECT_EQ(count, 2 * 9);
}

TEST(SeparateCalls, have_no_form_for_other_types_and_settings) {
  EXPECT_FALSE(has_separate_form({"rms_norm", RN_F32, {2, 8}, {}, {}}));
  EXPECT_FALSE(has_separate_form({"add_rms_norm", RN_F16, {2, 8}, {}, {}}));
  EXPECT_FALSE(has_separate_form({"gated_rms_norm", RN_F32, {2, 8}, {}, {{"groups", 2}}}));
  EXPECT_TRUE(has_separate_form({"gated_rms_norm", RN_F32, {2, 8}, {}, {{"gate_order", 1}}}));
}

}  // namespace
}  // namespace rmsnorm::tools
