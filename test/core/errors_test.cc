// Every way to call wrongly: the code, the whole message, and outputs that were not touched.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <thread>

#include "arguments.h"

namespace rmsnorm_test {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

struct Wrong {
  const char* name;
  void (*spoil)(Arguments&);
  rn_status code;
  const char* message;  // after "rn_add_layer_norm: "
};

void PrintTo(const Wrong& wrong, std::ostream* stream) { *stream << wrong.message; }

const Wrong kWrong[] = {
    // Types
    {"x_type", [](Arguments& a) { set_number(&a.x.type, 9); }, RN_INVALID_TYPE,
     "x.type is 9; it must be f32, f16, bf16 or f64"},
    {"x_type_negative", [](Arguments& a) { set_number(&a.x.type, -1); }, RN_INVALID_TYPE,
     "x.type is -1; it must be f32, f16, bf16 or f64"},
    {"out_type", [](Arguments& a) { a.out.type = RN_F64; }, RN_INVALID_TYPE,
     "out.type is f64; it must be f32, f16 or bf16 where x is f32"},
    {"out_type_number", [](Arguments& a) { set_number(&a.out.type, 9); }, RN_INVALID_TYPE,
     "out.type is 9; it must be f32, f16 or bf16 where x is f32"},
    {"residual_type", [](Arguments& a) { a.residual.type = RN_BF16; }, RN_INVALID_TYPE,
     "residual.type is bf16; it must be f32 where x is f32"},
    {"residual_out_type", [](Arguments& a) { a.x.type = a.out.type = RN_F16, a.residual_out.type = RN_BF16; },
     RN_INVALID_TYPE, "residual_out.type is bf16; it must be f32 or f16 where x is f16"},
    {"mean_type", [](Arguments& a) { a.mean.type = RN_F16; }, RN_INVALID_TYPE,
     "mean.type is f16; it must be f32 where x is f32"},
    {"inv_type", [](Arguments& a) { a.inv.type = RN_F64; }, RN_INVALID_TYPE,
     "inv_std.type is f64; it must be f32 where x is f32"},
    {"weight_type", [](Arguments& a) { a.weight.type = RN_F64; }, RN_INVALID_TYPE,
     "weight.type is f64; it must be f32, f16 or bf16 where x is f32"},
    {"bias_type", [](Arguments& a) { set_number(&a.bias.type, 99); }, RN_INVALID_TYPE,
     "bias.type is 99; it must be f32, f16 or bf16 where x is f32"},
    // Ranks and sizes
    {"x_rank_0", [](Arguments& a) { a.x.rank = 0; }, RN_INVALID_VALUE, "x.rank is 0; it must be from 1 to 8"},
    {"x_rank_9", [](Arguments& a) { a.x = rn_tensor(a.x.data, RN_F32, 9, nullptr); }, RN_INVALID_VALUE,
     "x.rank is 9; it must be from 1 to 8"},
    {"out_rank_negative", [](Arguments& a) { a.out.rank = -1; }, RN_INVALID_VALUE,
     "out.rank is -1; it must be from 1 to 8"},
    {"out_rank", [](Arguments& a) { a.out.rank = 2; }, RN_INVALID_VALUE, "out.rank is 2; it must be 3, the rank of x"},
    {"mean_rank", [](Arguments& a) { a.mean.rank = 3, a.mean.shape[2] = 1; }, RN_INVALID_VALUE,
     "mean.rank is 3; it must be 2, one less than the rank of x"},
    {"weight_rank",
     [](Arguments& a) { a.weight.rank = 4, a.weight.shape[1] = a.weight.shape[2] = a.weight.shape[3] = 1; },
     RN_INVALID_VALUE, "weight.rank is 4; it must be at most 3, the rank of x"},
    {"negative_size", [](Arguments& a) { a.x.shape[1] = -3; }, RN_INVALID_VALUE,
     "x.shape[1] is -3; it must be 0 or more"},
    {"no_columns", [](Arguments& a) { a.x.shape[2] = 0; }, RN_INVALID_VALUE,
     "x.shape[2] is 0; it must be from 1 to 2^31 on the normalised axis"},
    {"no_columns_no_rows", [](Arguments& a) { a.x.shape[0] = a.x.shape[2] = 0; }, RN_INVALID_VALUE,
     "x.shape[2] is 0; it must be from 1 to 2^31 on the normalised axis"},
    {"too_many_columns", [](Arguments& a) { a.x.shape[2] = (int64_t{1} << 31) + 1; }, RN_INVALID_VALUE,
     "x.shape[2] is 2147483649; it must be from 1 to 2^31 on the normalised axis"},
    {"too_many_rows", [](Arguments& a) { a.x.shape[0] = int64_t{1} << 39, a.x.strides[0] = 0; }, RN_INVALID_VALUE,
     "x.shape[1] is 3; the product of x's leading sizes must be at most 2^40 rows"},
    {"rows_overflow", [](Arguments& a) { a.x.shape[0] = int64_t{1} << 40, a.x.shape[1] = kHuge; }, RN_INVALID_VALUE,
     "x.shape[1] is 9223372036854775807; the product of x's leading sizes must be at most 2^40 rows"},
    {"out_size", [](Arguments& a) { a.out.shape[1] = 5; }, RN_INVALID_VALUE,
     "out.shape[1] is 5; it must be 3, the size of x.shape[1]"},
    {"residual_size", [](Arguments& a) { a.residual.shape[0] = 1; }, RN_INVALID_VALUE,
     "residual.shape[0] is 1; it must be 2, the size of x.shape[0]"},
    {"residual_out_columns", [](Arguments& a) { a.residual_out.shape[2] = 3; }, RN_INVALID_VALUE,
     "residual_out.shape[2] is 3; it must be 4, the size of x.shape[2]"},
    {"inv_size", [](Arguments& a) { a.inv.shape[1] = 4; }, RN_INVALID_VALUE,
     "inv_std.shape[1] is 4; it must be 3, the size of x.shape[1]"},
    {"weight_columns", [](Arguments& a) { a.weight.shape[0] = 1; }, RN_INVALID_VALUE,
     "weight.shape[0] is 1; it must be 4, the size of x.shape[2]"},
    {"bias_broadcast", [](Arguments& a) { a.bias.rank = 2, a.bias.shape[0] = 2, a.bias.shape[1] = 4; },
     RN_INVALID_VALUE, "bias.shape[0] is 2; it must be 1 or 3, the size of x.shape[1]"},
    // Strides and spans
    {"last_stride", [](Arguments& a) { a.x.strides[2] = 2; }, RN_INVALID_VALUE,
     "x.strides[2] is 2; it must be 1 on the normalised axis"},
    {"last_stride_0", [](Arguments& a) { a.weight.strides[0] = 0; }, RN_INVALID_VALUE,
     "weight.strides[0] is 0; it must be 1 on the normalised axis"},
    {"output_stride_0", [](Arguments& a) { a.out.strides[0] = 0; }, RN_INVALID_VALUE,
     "out.strides[0] is 0; it must be another number in an output, here on an axis of size 2"},
    {"statistic_stride_0", [](Arguments& a) { a.mean.strides[1] = 0; }, RN_INVALID_VALUE,
     "mean.strides[1] is 0; it must be another number in an output, here on an axis of size 3"},
    {"span_overflow", [](Arguments& a) { a.x.strides[0] = kHuge; }, RN_INVALID_VALUE,
     "x.shape[0] and x.strides[0] are 2 and 9223372036854775807; the tensor must span less than 2^60 bytes"},
    {"span_product_overflow", [](Arguments& a) { a.residual.strides[1] = kHuge / 2 + 1; }, RN_INVALID_VALUE,
     "residual.shape[1] and residual.strides[1] are 3 and 4611686018427387904; the tensor must span less than 2^60 "
     "bytes"},
    {"span_lowest_stride", [](Arguments& a) { a.x.strides[0] = -kHuge - 1; }, RN_INVALID_VALUE,
     "x.shape[0] and x.strides[0] are 2 and -9223372036854775808; the tensor must span less than 2^60 bytes"},
    {"span_sum", [](Arguments& a) { a.x.strides[0] = int64_t{1} << 57, a.x.strides[1] = -(int64_t{1} << 56); },
     RN_INVALID_VALUE,
     "x.shape[1] and x.strides[1] are 3 and -72057594037927936; the tensor must span less than 2^60 bytes"},
    // Data
    {"x_data", [](Arguments& a) { a.x.data = nullptr; }, RN_INVALID_VALUE,
     "x.data is NULL; it must point to the elements"},
    {"weight_data", [](Arguments& a) { a.weight.data = nullptr; }, RN_INVALID_VALUE,
     "weight.data is NULL; it must point to the elements"},
    {"mean_data", [](Arguments& a) { a.mean.data = nullptr; }, RN_INVALID_VALUE,
     "mean.data is NULL; it must point to the elements"},
    // Options
    {"epsilon_negative", [](Arguments& a) { a.layer.norm.epsilon = -1e-5; }, RN_INVALID_VALUE,
     "options.epsilon is -1e-05; it must be finite and 0 or more"},
    {"epsilon_nan", [](Arguments& a) { a.layer.norm.epsilon = std::nan(""); }, RN_INVALID_VALUE,
     "options.epsilon is nan; it must be finite and 0 or more"},
    {"epsilon_infinite", [](Arguments& a) { a.layer.norm.epsilon = HUGE_VAL; }, RN_INVALID_VALUE,
     "options.epsilon is inf; it must be finite and 0 or more"},
    {"offset_infinite", [](Arguments& a) { a.layer.norm.weight_offset = -HUGE_VAL; }, RN_INVALID_VALUE,
     "options.weight_offset is -inf; it must be finite"},
    {"norm_input", [](Arguments& a) { set_number(&a.layer.norm_input, 2); }, RN_INVALID_VALUE,
     "options.norm_input is 2; it must be RN_NORM_ROUNDED_SUM (0) or RN_NORM_UNROUNDED_SUM (1)"},
    {"threads", [](Arguments& a) { a.execution.threads = -2; }, RN_INVALID_VALUE,
     "execution.threads is -2; it must be 0 (all CPUs) or more"},
};

class WrongCall : public testing::TestWithParam<Wrong> {};

TEST_P(WrongCall, IsRefusedWithTheNumbers) {
  Arguments a;
  GetParam().spoil(a);
  EXPECT_EQ(a.add_layer_norm(), GetParam().code);
  EXPECT_EQ(rn_last_error(), std::string("rn_add_layer_norm: ") + GetParam().message);
  EXPECT_TRUE(a.untouched());
}

INSTANTIATE_TEST_SUITE_P(Errors, WrongCall, testing::ValuesIn(kWrong),
                         [](const auto& test) { return std::string(test.param.name); });

// Checks one call that must fail.
void expect(rn_status status, rn_status code, const std::string& message, const Arguments& a) {
  EXPECT_EQ(status, code);
  EXPECT_EQ(rn_last_error(), message);
  EXPECT_TRUE(a.untouched());
}

TEST(Errors, UnspoiledCallsSucceed) {
  Arguments a;
  EXPECT_EQ(a.add_layer_norm(), RN_OK) << rn_last_error();
  EXPECT_EQ(a.add_rms_norm(), RN_OK) << rn_last_error();
  EXPECT_EQ(a.layer_norm(), RN_OK) << rn_last_error();
  EXPECT_EQ(a.rms_norm(), RN_OK) << rn_last_error();
  EXPECT_EQ(a.center(), RN_OK) << rn_last_error();
  EXPECT_FALSE(a.untouched());
}

TEST(Errors, EveryFunctionNamesItself) {
  Arguments a;
  a.x.shape[2] = 0;
  const std::string rest = ": x.shape[2] is 0; it must be from 1 to 2^31 on the normalised axis";
  expect(a.rms_norm(), RN_INVALID_VALUE, "rn_rms_norm" + rest, a);
  expect(a.layer_norm(), RN_INVALID_VALUE, "rn_layer_norm" + rest, a);
  expect(a.add_rms_norm(), RN_INVALID_VALUE, "rn_add_rms_norm" + rest, a);
  expect(a.add_layer_norm(), RN_INVALID_VALUE, "rn_add_layer_norm" + rest, a);
  expect(a.center(), RN_INVALID_VALUE, "rn_center" + rest, a);
}

TEST(Errors, MissingOperands) {
  Arguments a;
  const auto call = [&](const rn_view* out, const rn_view* residual_out, const rn_view* x, const rn_view* residual) {
    return rn_add_rms_norm(out, residual_out, nullptr, x, residual, nullptr, nullptr, nullptr, nullptr);
  };
  const std::string start = "rn_add_rms_norm: ";
  const std::string end = " is NULL; it must be a view";
  expect(call(nullptr, &a.residual_out, &a.x, &a.residual), RN_INVALID_TYPE, start + "out" + end, a);
  expect(call(&a.out, nullptr, &a.x, &a.residual), RN_INVALID_TYPE, start + "residual_out" + end, a);
  expect(call(&a.out, &a.residual_out, nullptr, &a.residual), RN_INVALID_TYPE, start + "x" + end, a);
  expect(call(&a.out, &a.residual_out, &a.x, nullptr), RN_INVALID_TYPE, start + "residual" + end, a);
  expect(rn_center(nullptr, &a.x, nullptr), RN_INVALID_TYPE, "rn_center: out" + end, a);
  expect(rn_rms_norm(&a.out, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr), RN_INVALID_TYPE,
         "rn_rms_norm: x" + end, a);
}

TEST(Errors, RmsNormOptions) {
  Arguments a;
  const std::string start = "rn_rms_norm: options.";
  a.rms.norm.partial = 5;
  expect(a.rms_norm(), RN_INVALID_VALUE, start + "partial is 5; it must be from 0 (all) to 4, the columns of x", a);
  a.rms.norm.partial = rn_partial_columns(4, 0);
  expect(a.rms_norm(), RN_INVALID_VALUE, start + "partial is -1; it must be from 0 (all) to 4, the columns of x", a);
  a.rms.norm.partial = 0;
  set_number(&a.rms.norm.rounding, 3);
  expect(a.rms_norm(), RN_INVALID_VALUE,
         start + "rounding is 3; it must be RN_ROUND_ONCE (0), RN_ROUND_BEFORE_WEIGHT (1) or RN_ROUND_EXACT (2)", a);
  set_number(&a.rms.norm.rounding, 0);
  set_number(&a.rms.norm.epsilon_placement, -1);
  expect(a.rms_norm(), RN_INVALID_VALUE,
         start + "epsilon_placement is -1; it must be RN_EPSILON_INSIDE (0) or RN_EPSILON_OUTSIDE (1)", a);
  set_number(&a.rms.norm.epsilon_placement, 0);
  a.rms.norm.epsilon = -0.5;
  expect(a.rms_norm(), RN_INVALID_VALUE, start + "epsilon is -0.5; it must be finite and 0 or more", a);
}

TEST(Errors, StatisticsOfOneRow) {
  Arguments a;
  a.x = rn_vector(a.x.data, RN_F32, 4);
  a.out = rn_vector(a.out.data, RN_F32, 4);
  a.inv = rn_matrix(a.inv.data, RN_F32, 1, 1);
  expect(a.rms_norm(), RN_INVALID_VALUE, "rn_rms_norm: inv_rms.rank is 2; it must be 1, as x is one row", a);
  a.inv = rn_vector(a.inv.data, RN_F32, 4);
  expect(a.rms_norm(), RN_INVALID_VALUE, "rn_rms_norm: inv_rms.shape[0] is 4; it must be 1, as x is one row", a);
  a.inv = rn_vector(a.inv.data, RN_F32, 1);
  EXPECT_EQ(a.rms_norm(), RN_OK) << rn_last_error();
}

std::string pointer_text(const void* pointer) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", pointer);
  return text;
}

TEST(Errors, MisalignedData) {
  Arguments a;
  a.weight.data = a.buffers[6].bytes + 2;
  expect(a.rms_norm(), RN_INVALID_VALUE,
         "rn_rms_norm: weight.data is " + pointer_text(a.weight.data) + "; it must be a multiple of 4, the size of f32",
         a);
  a.weight.type = RN_F16;
  EXPECT_EQ(a.rms_norm(), RN_OK) << rn_last_error();
}

TEST(Errors, DataAtTheEndOfTheAddressSpace) {
  Arguments a;
  a.x.data = reinterpret_cast<void*>(UINTPTR_MAX - 95 + 4);
  expect(a.rms_norm(), RN_INVALID_VALUE,
         "rn_rms_norm: x.data is " + pointer_text(a.x.data) +
             "; its elements must lie within the address space, from 0 bytes before to 95 bytes after it",
         a);
  a.x.data = reinterpret_cast<void*>(uintptr_t{64});
  a.x.strides[0] = -12;
  a.x.strides[1] = -4;
  expect(a.rms_norm(), RN_INVALID_VALUE,
         "rn_rms_norm: x.data is " + pointer_text(a.x.data) +
             "; its elements must lie within the address space, from 80 bytes before to 15 bytes after it",
         a);
}

TEST(Errors, OverlapNamesBothOperandsAndTheirBytes) {
  Arguments a;
  const auto* bytes = a.buffers[4].bytes;
  a.out.data = a.buffers[4].bytes + 4;
  expect(a.rms_norm(), RN_INVALID_VALUE,
         "rn_rms_norm: out is in bytes " + pointer_text(bytes + 4) + " to " + pointer_text(bytes + 99) +
             " and overlaps x in bytes " + pointer_text(bytes) + " to " + pointer_text(bytes + 95) +
             "; it must be that same view or share no byte with it",
         a);
  a.out.data = a.buffers[0].bytes;
  a.out.strides[0] = 8;
  expect(a.rms_norm(), RN_INVALID_VALUE,
         "rn_rms_norm: out is in bytes " + pointer_text(a.out.data) + " to " + pointer_text(a.buffers[0].bytes + 79) +
             " and overlaps itself in bytes " + pointer_text(a.out.data) + " to " +
             pointer_text(a.buffers[0].bytes + 79) + "; it must have each element at its own place",
         a);
}

TEST(Errors, MessagesBelongToTheirThread) {
  Arguments a;
  a.x.rank = 0;
  EXPECT_EQ(a.rms_norm(), RN_INVALID_VALUE);
  std::thread([] {
    EXPECT_STREQ(rn_last_error(), "");
    Arguments b;
    b.x.rank = 77;
    EXPECT_EQ(b.rms_norm(), RN_INVALID_VALUE);
    EXPECT_STREQ(rn_last_error(), "rn_rms_norm: x.rank is 77; it must be from 1 to 8");
  }).join();
  EXPECT_STREQ(rn_last_error(), "rn_rms_norm: x.rank is 0; it must be from 1 to 8");
  Arguments good;
  EXPECT_EQ(good.rms_norm(), RN_OK);
  EXPECT_STREQ(rn_last_error(), "rn_rms_norm: x.rank is 0; it must be from 1 to 8") << "success keeps the last message";
}

}  // namespace
}  // namespace rmsnorm_test
