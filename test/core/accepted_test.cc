// What calls may look like: every pair of types, shapes without rows, ignored strides, allowed aliases; and the small
// functions of the C interface.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "arguments.h"

namespace rmsnorm_test {
namespace {

constexpr rn_type kTypes[] = {RN_F32, RN_F16, RN_BF16, RN_F64};

// Which types each operand may have, as section 1 of docs/numbers.md lists them; columns as kTypes.
struct Accepted {
  rn_type x;
  const char* out;
  const char* residual;
  const char* weight;
  const char* statistic;
};
constexpr Accepted kAccepted[] = {
    {RN_F32, "yyyn", "ynnn", "yyyn", "ynnn"},
    {RN_F16, "yynn", "yynn", "yyyn", "ynnn"},
    {RN_BF16, "ynyn", "ynyn", "yyyn", "ynnn"},
    {RN_F64, "ynny", "nnny", "ynny", "nnny"},
};

// A call in which everything has x's type, as far as that is allowed.
void set_types(Arguments& a, rn_type x) {
  for (rn_view* view : {&a.x, &a.out, &a.residual, &a.residual_out, &a.weight, &a.bias}) view->type = x;
  a.mean.type = a.inv.type = x == RN_F64 ? RN_F64 : RN_F32;
}

TEST(Accepted, TypesOfEveryOperand) {
  int accepted = 0;
  for (const Accepted& row : kAccepted) {
    const struct {
      const char* name;
      rn_view Arguments::*view;
      const char* types;
    } operands[] = {{"out", &Arguments::out, row.out},
                    {"residual", &Arguments::residual, row.residual},
                    {"residual_out", &Arguments::residual_out, row.residual},
                    {"weight", &Arguments::weight, row.weight},
                    {"bias", &Arguments::bias, row.weight},
                    {"mean", &Arguments::mean, row.statistic},
                    {"inv_std", &Arguments::inv, row.statistic}};
    for (const auto& operand : operands) {
      for (int t = 0; t < 4; ++t) {
        Arguments a;
        set_types(a, row.x);
        (a.*operand.view).type = kTypes[t];
        const rn_status wanted = operand.types[t] == 'y' ? RN_OK : RN_INVALID_TYPE;
        EXPECT_EQ(a.add_layer_norm(), wanted) << operand.name << " " << rn_type_name(kTypes[t]) << " with x "
                                              << rn_type_name(row.x) << ": " << rn_last_error();
        if (wanted == RN_OK) {
          ++accepted;
        } else {
          EXPECT_TRUE(a.untouched());
          EXPECT_NE(
              std::string(rn_last_error())
                  .find(std::string("rn_add_layer_norm: ") + operand.name + ".type is " + rn_type_name(kTypes[t])),
              std::string::npos)
              << rn_last_error();
        }
      }
    }
  }
  EXPECT_EQ(accepted, 51);
}

TEST(Accepted, WeightAndBiasOfDifferentTypes) {
  Arguments a;
  set_types(a, RN_BF16);
  a.weight.type = RN_F32;
  a.bias.type = RN_F16;
  EXPECT_EQ(a.rms_norm(), RN_OK) << rn_last_error();
}

TEST(Accepted, NoRowsTouchNothing) {
  // Also with null data, with sizes whose product overflows, and with strides that lead nowhere.
  Arguments a;
  for (rn_view* view : {&a.x, &a.out, &a.residual, &a.residual_out, &a.mean, &a.inv}) {
    view->shape[0] = INT64_MAX;
    view->shape[1] = 0;
    view->strides[0] = view->strides[1] = INT64_MIN;
    view->data = nullptr;
  }
  EXPECT_EQ(a.add_layer_norm(), RN_OK) << rn_last_error();
  EXPECT_EQ(a.add_rms_norm(), RN_OK) << rn_last_error();
  EXPECT_EQ(a.layer_norm(), RN_OK) << rn_last_error();
  EXPECT_EQ(a.rms_norm(), RN_OK) << rn_last_error();
  EXPECT_EQ(a.center(), RN_OK) << rn_last_error();
  EXPECT_TRUE(a.untouched());
}

TEST(Accepted, NoRowsStillNeedValidOptions) {
  Arguments a;
  a.x.shape[0] = a.out.shape[0] = a.inv.shape[0] = 0;
  a.rms.norm.epsilon = -1;
  EXPECT_EQ(a.rms_norm(), RN_INVALID_VALUE);
}

TEST(Accepted, StridesOfSizeOneAxesAreIgnored) {
  Arguments a;
  for (rn_view* view : {&a.x, &a.out}) {
    view->shape[0] = view->shape[2] = 1;
    view->strides[0] = INT64_MIN;
    view->strides[2] = 77;
  }
  EXPECT_EQ(a.center(), RN_OK) << rn_last_error();
}

TEST(Accepted, WeightsPerHeadAndPerSample) {
  Arguments a;
  a.weight = rn_matrix(a.weight.data, RN_F32, 3, 4);  // [heads, d]
  const int64_t per_sample[] = {2, 1, 4};
  a.bias = rn_tensor(a.bias.data, RN_F32, 3, per_sample);
  EXPECT_EQ(a.rms_norm(), RN_OK) << rn_last_error();
  a.bias.shape[1] = 3;
  a.bias.strides[1] = 0;
  EXPECT_EQ(a.rms_norm(), RN_OK) << rn_last_error();
}

TEST(Accepted, BroadcastRowsOfInputs) {
  Arguments a;
  a.x.strides[0] = a.x.strides[1] = a.residual.strides[0] = 0;
  EXPECT_EQ(a.add_rms_norm(), RN_OK) << rn_last_error();
}

TEST(Accepted, InPlaceAndSharedInputs) {
  Arguments a;
  a.out.data = a.x.data;
  a.residual_out.data = a.residual.data;
  a.bias = a.weight;
  EXPECT_EQ(a.add_layer_norm(), RN_OK) << rn_last_error();
  Arguments b;
  b.residual.data = b.x.data;
  EXPECT_EQ(b.add_rms_norm(), RN_OK) << rn_last_error();
}

TEST(Accepted, OnlyTheNamedPairsMayShareMemory) {
  const auto refused = [](auto spoil) {
    Arguments a;
    spoil(a);
    return a.add_layer_norm() == RN_INVALID_VALUE && a.untouched();
  };
  EXPECT_TRUE(refused([](Arguments& a) { a.out.data = a.residual.data; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.residual_out.data = a.x.data; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.residual_out.data = a.out.data; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.out.data = a.weight.data; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.residual_out.data = a.bias.data; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.mean.data = a.inv.data; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.mean.data = a.x.data; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.inv.data = a.buffers[0].bytes + 92; })) << "the last element of out";
  EXPECT_TRUE(refused([](Arguments& a) { a.inv.data = a.weight.data; }));
  EXPECT_TRUE(refused([](Arguments& a) { a.residual.data = a.x.data, a.out.data = a.x.data; }))
      << "out may be x, but not while residual is x, too";
  EXPECT_TRUE(refused([](Arguments& a) {
    for (rn_view* view : {&a.x, &a.residual, &a.out}) view->type = RN_F16;
    a.out.data = a.x.data, a.out.type = RN_F32, a.residual_out.type = RN_F16;
  })) << "equal pointer, other type";
  EXPECT_TRUE(refused([](Arguments& a) { a.out.data = a.x.data, a.out.strides[0] = 16; }))
      << "equal pointer, other strides";
  EXPECT_FALSE(refused([](Arguments& a) { a.inv.data = a.buffers[0].bytes + 96; })) << "just behind out";
}

TEST(Accepted, QueriesAndKeysOfOneBuffer) {
  // [tokens, 2 of Q + 2 of K + 2 of V heads, 4], normalised from one third into another, and in place.
  alignas(64) float buffer[5 * 6 * 4];
  for (float& value : buffer) value = 1.5f;
  const int64_t shape[] = {5, 2, 4};
  rn_view queries = rn_tensor(buffer, RN_F32, 3, shape);
  queries.strides[0] = 24;
  rn_view keys = queries;
  keys.data = buffer + 8;
  EXPECT_EQ(rn_rms_norm(&queries, nullptr, &keys, nullptr, nullptr, nullptr, nullptr), RN_OK) << rn_last_error();
  EXPECT_EQ(rn_rms_norm(&keys, nullptr, &keys, nullptr, nullptr, nullptr, nullptr), RN_OK) << rn_last_error();
  keys.data = buffer + 4;  // one head of Q is among these
  EXPECT_EQ(rn_rms_norm(&queries, nullptr, &keys, nullptr, nullptr, nullptr, nullptr), RN_INVALID_VALUE);
}

TEST(Functions, Types) {
  EXPECT_STREQ(rn_type_name(RN_F32), "f32");
  EXPECT_STREQ(rn_type_name(RN_F16), "f16");
  EXPECT_STREQ(rn_type_name(RN_BF16), "bf16");
  EXPECT_STREQ(rn_type_name(RN_F64), "f64");
  EXPECT_EQ(rn_type_size(RN_F32), 4u);
  EXPECT_EQ(rn_type_size(RN_F16), 2u);
  EXPECT_EQ(rn_type_size(RN_BF16), 2u);
  EXPECT_EQ(rn_type_size(RN_F64), 8u);
  EXPECT_STREQ(rn_version(), RMSNORM_VERSION);
}

TEST(Functions, DenseViews) {
  float data[24];
  const rn_view view = rn_tensor(data, RN_F32, 3, kShape);
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.strides[0], 12);
  EXPECT_EQ(view.strides[1], 4);
  EXPECT_EQ(view.strides[2], 1);
  const rn_view matrix = rn_matrix(data, RN_BF16, 6, 4);
  EXPECT_EQ(matrix.rank, 2);
  EXPECT_EQ(matrix.type, RN_BF16);
  EXPECT_EQ(matrix.strides[0], 4);
  const rn_view vector = rn_vector(data, RN_F64, 24);
  EXPECT_EQ(vector.rank, 1);
  EXPECT_EQ(vector.shape[0], 24);
  EXPECT_EQ(vector.strides[0], 1);
}

TEST(Functions, Defaults) {
  const rn_rms_norm_options rms = rn_rms_norm_defaults();
  EXPECT_EQ(rms.epsilon, 1e-6);
  EXPECT_EQ(rms.weight_offset, 0);
  EXPECT_EQ(rms.epsilon_placement, RN_EPSILON_INSIDE);
  EXPECT_EQ(rms.rounding, RN_ROUND_ONCE);
  EXPECT_EQ(rms.partial, 0);
  EXPECT_EQ(rn_layer_norm_defaults().epsilon, 1e-5);
  EXPECT_EQ(rn_add_rms_norm_defaults().norm.epsilon, 1e-6);
  EXPECT_EQ(rn_add_rms_norm_defaults().norm_input, RN_NORM_ROUNDED_SUM);
  EXPECT_EQ(rn_add_layer_norm_defaults().norm.epsilon, 1e-5);
  EXPECT_EQ(rn_add_layer_norm_defaults().norm_input, RN_NORM_ROUNDED_SUM);
}

TEST(Functions, PartialColumns) {
  EXPECT_EQ(rn_partial_columns(512, 0.0625), 32);
  EXPECT_EQ(rn_partial_columns(10, 0.05), 1) << "never 0, which would mean all";
  EXPECT_EQ(rn_partial_columns(10, 0.99), 9);
  EXPECT_EQ(rn_partial_columns(10, 1), 10);
  EXPECT_EQ(rn_partial_columns(1, 1e-300), 1);
  EXPECT_EQ(rn_partial_columns(INT64_MAX, 1), INT64_MAX);
  for (const double fraction : {0.0, -0.5, 1.0000001, HUGE_VAL, std::nan("")}) {
    EXPECT_EQ(rn_partial_columns(10, fraction), -1) << fraction;
  }
  EXPECT_EQ(rn_partial_columns(0, 0.5), -1);
  EXPECT_EQ(rn_partial_columns(-3, 0.5), -1);
}

}  // namespace
}  // namespace rmsnorm_test
