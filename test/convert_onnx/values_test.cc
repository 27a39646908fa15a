// Numbers of tensors: every way a file holds them, one rounding back, means.
#include <gtest/gtest.h>

#include <cmath>

#include "convert/onnx/values.h"
#include "graphs.h"
#include "reference/format.h"

namespace rmsnorm::convert::onnx {
namespace {

using Type = pb::TensorProto;

TEST(OnnxValues, come_back_as_stored) {
  for (const int type : {Type::FLOAT, Type::FLOAT16, Type::BFLOAT16, Type::DOUBLE, Type::INT64, Type::INT32}) {
    const Array array{type, {2, 3}, {0, 1, -2, 100, -7, 64}};
    pb::TensorProto tensor;
    tensor.add_float_data(5);  // is forgotten
    store_array(tensor, array);
    check_tensor(tensor, "");
    const auto back = read_array(tensor, "");
    ASSERT_TRUE(back);
    EXPECT_EQ(back->values, array.values);
    EXPECT_EQ(back->dims, array.dims);
    EXPECT_EQ(tensor.raw_data().size(), 6 * type_size(type));
  }
}

TEST(OnnxValues, typed_fields) {
  pb::TensorProto half;
  half.set_data_type(Type::FLOAT16);
  half.add_dims(2);
  half.add_int32_data(0x3c00);
  half.add_int32_data(0xc000);
  EXPECT_EQ(read_array(half, "")->values, (std::vector<double>{1, -2}));
  pb::TensorProto brain = half;
  brain.set_data_type(Type::BFLOAT16);
  brain.set_int32_data(0, 0x3f80);
  brain.set_int32_data(1, 0xc000);
  EXPECT_EQ(read_array(brain, "")->values, (std::vector<double>{1, -2}));
}

TEST(OnnxValues, one_rounding) {
  const std::pair<int, rn_type> types[] = {{Type::FLOAT, RN_F32}, {Type::FLOAT16, RN_F16}, {Type::BFLOAT16, RN_BF16}};
  for (const auto& [type, name] : types) {
    // Just beyond a tie of the narrow type: rounding by way of f32 would land on it.
    for (const double value :
         {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11 - 0x1p-40, 1.0 / 3, -0.7, 1e-7}) {
      EXPECT_EQ(round_to_type(type, value), reference::round_to(name, static_cast<reference::Quad>(value)))
          << type_name(type) << " " << value;
    }
  }
}

TEST(OnnxValues, overflow_is_refused) {
  pb::TensorProto tensor;
  for (const double value : {70000.0, std::nan(""), HUGE_VAL}) {
    try {
      store_array(tensor, {Type::FLOAT16, {1}, {value}});
      ADD_FAILURE() << value;
    } catch (const Refusal& refusal) {
      EXPECT_EQ(refusal.refusal(), RefusalCode::kNonFinite);
    }
  }
}

TEST(OnnxValues, centring_along_each_axis) {
  const Array array{Type::FLOAT, {2, 3, 2}, {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233}};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    Array centred = array;
    centre(centred, axis, false);
    const Lines lines = lines_along(array.dims, axis);
    for (std::size_t o = 0; o < lines.outer; ++o) {
      for (std::size_t i = 0; i < lines.inner; ++i) {
        double sum = 0, shift = 0;
        for (std::size_t k = 0; k < lines.length; ++k) {
          const std::size_t at = (o * lines.length + k) * lines.inner + i;
          sum += centred.values[at];
          if (k > 0) EXPECT_NEAR(array.values[at] - centred.values[at], shift, 1e-12);
          shift = array.values[at] - centred.values[at];
        }
        EXPECT_NEAR(sum, 0, 1e-12);
      }
    }
  }
}

TEST(OnnxValues, carried_rounding_keeps_the_sum) {
  Array plain{Type::FLOAT16, {1, 301}, {}};
  for (int i = 0; i < 301; ++i) plain.values.push_back(std::sin(i * 0.7) + 0.3);
  Array carried = plain;
  centre(plain, 1, false);
  centre(carried, 1, true);
  double sum = 0;
  for (const double value : carried.values) {
    EXPECT_EQ(value, round_to_type(Type::FLOAT16, value));
    sum += value;
  }
  EXPECT_LT(std::fabs(sum), 0x1p-11);
}

}  // namespace
}  // namespace rmsnorm::convert::onnx
