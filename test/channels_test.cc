// Channel norms beyond what operations_test asks of every operation: against whole rows, gradients by differences,
// layouts, special values, messages.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/values.h"
#include "rmsnorm/rmsnorm.hpp"

namespace rmsnorm {
namespace {

constexpr std::int64_t kN = 2, kC = 6, kH = 3, kW = 5, kPixels = kH * kW;

template <class T>
std::vector<T> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<T>(reference::draw(reference::Values::kNormal, RN_F32, seed, reference::Stream::kX, 0,
                                               static_cast<std::int64_t>(i), static_cast<std::int64_t>(count)));
  }
  return values;
}

template <class T>
View images(T* data) {
  return View(data, {kN, kC, kH, kW});
}

constexpr std::size_t kElements = static_cast<std::size_t>(kN * kC * kPixels);

// The pixels of an image are the rows of its transposed matrix, which `exact` rounds as the channel norm does.
TEST(Channels, a_pixel_is_a_row_of_its_channels) {
  const std::vector<float> x = numbers<float>(kElements, 1), weight = numbers<float>(kC, 2);
  std::vector<float> out(kElements), rows(kElements), expected(kElements);
  rms_norm_channels(images(out.data()), images(x.data()), vector(weight.data(), kC));
  const auto at = [](std::int64_t n, std::int64_t c, std::int64_t p) {
    return static_cast<std::size_t>((n * kC + c) * kPixels + p);
  };
  const auto row_at = [](std::int64_t n, std::int64_t c, std::int64_t p) {
    return static_cast<std::size_t>((n * kPixels + p) * kC + c);
  };
  for (std::int64_t n = 0; n < kN; ++n)
    for (std::int64_t c = 0; c < kC; ++c)
      for (std::int64_t p = 0; p < kPixels; ++p) rows[row_at(n, c, p)] = x[at(n, c, p)];
  rms_norm(matrix(expected.data(), kN * kPixels, kC), {}, matrix(rows.data(), kN * kPixels, kC),
           vector(weight.data(), kC), {}, {.rounding = Rounding::kExact});
  for (std::int64_t n = 0; n < kN; ++n)
    for (std::int64_t c = 0; c < kC; ++c)
      for (std::int64_t p = 0; p < kPixels; ++p) ASSERT_EQ(out[at(n, c, p)], expected[row_at(n, c, p)]);
}

// Any strides but that of the last axis: every layout gives the bits of the dense one, dweight included.
TEST(Channels, strides_change_no_bit) {
  const std::vector<float> x = numbers<float>(kElements, 1), dy = numbers<float>(kElements, 2),
                           weight = numbers<float>(kC, 3);
  // Channels before images, lines backwards and two elements of padding behind each.
  constexpr std::int64_t kLine = kW + 2, kStrides[] = {kH * kLine, kN * kH * kLine, -kLine, 1};
  const auto place = [&](std::size_t i) {
    const auto k = static_cast<std::int64_t>(i);
    return static_cast<std::size_t>(k / (kC * kPixels) * kStrides[0] + k / kPixels % kC * kStrides[1] +
                                    (kH - 1 - k / kW % kH) * kLine + k % kW);
  };
  const auto strided = [&](std::vector<float>& memory) {
    return View(memory.data() + (kH - 1) * kLine, {kN, kC, kH, kW},
                {kStrides[0], kStrides[1], kStrides[2], kStrides[3]});
  };
  std::vector<float> x2(kN * kC * kH * kLine), dy2(x2.size()), out2(x2.size());
  for (std::size_t i = 0; i < kElements; ++i) {
    x2[place(i)] = x[i];
    dy2[place(i)] = dy[i];
  }
  for (const std::int64_t groups : {0, 2}) {
    std::vector<float> out(kElements), dweight(kC), dweight2(kC);
    const View w = vector(weight.data(), kC);
    if (groups == 0) {
      rms_norm_channels_backward(images(out.data()), vector(dweight.data(), kC), {}, images(dy.data()),
                                 images(x.data()), w);
      rms_norm_channels_backward(strided(out2), vector(dweight2.data(), kC), {}, strided(dy2), strided(x2), w);
    } else {
      group_rms_norm_backward(images(out.data()), vector(dweight.data(), kC), {}, images(dy.data()), images(x.data()),
                              groups, w);
      group_rms_norm_backward(strided(out2), vector(dweight2.data(), kC), {}, strided(dy2), strided(x2), groups, w);
    }
    EXPECT_EQ(dweight, dweight2);
    for (std::size_t i = 0; i < kElements; ++i) ASSERT_EQ(out[i], out2[place(i)]) << i;
    if (groups == 0) {
      rms_norm_channels(images(out.data()), images(x.data()), w);
      rms_norm_channels(strided(out2), strided(x2), w);
    } else {
      group_rms_norm(images(out.data()), images(x.data()), groups, w);
      group_rms_norm(strided(out2), strided(x2), groups, w);
    }
    for (std::size_t i = 0; i < kElements; ++i) ASSERT_EQ(out[i], out2[place(i)]) << i;
  }
}

// Central differences of sum(dy * out) in f64, for x, weight and bias, with every option.
TEST(Channels, gradients_are_those_of_the_forward) {
  std::vector<double> x = numbers<double>(kElements, 1), weight = numbers<double>(kC, 3), bias = numbers<double>(kC, 4);
  const std::vector<double> dy = numbers<double>(kElements, 2);
  for (const std::int64_t groups : {0, 1, 3, 6}) {
    for (const EpsilonPlacement placement : {EpsilonPlacement::kInside, EpsilonPlacement::kOutside}) {
      RmsNormBackwardOptions options;
      options.epsilon = 1e-2;
      options.weight_offset = 0.5;
      options.epsilon_placement = placement;
      const auto value = [&] {
        std::vector<double> out(kElements);
        const View w = vector(weight.data(), kC), b = vector(bias.data(), kC);
        groups == 0 ? rms_norm_channels(images(out.data()), images(x.data()), w, b, options)
                    : group_rms_norm(images(out.data()), images(x.data()), groups, w, b, options);
        double sum = 0;
        for (std::size_t i = 0; i < kElements; ++i) sum += dy[i] * out[i];
        return sum;
      };
      const auto difference = [&](double& at) {
        constexpr double kStep = 0x1p-17;
        const double before = at;
        at = before + kStep;
        const double above = value();
        at = before - kStep;
        const double below = value();
        at = before;
        return (above - below) / (2 * kStep);
      };
      std::vector<double> dx(kElements), dweight(kC), dbias(kC);
      const View dw = vector(dweight.data(), kC), db = vector(dbias.data(), kC), w = vector(weight.data(), kC);
      groups == 0
          ? rms_norm_channels_backward(images(dx.data()), dw, db, images(dy.data()), images(x.data()), w, options)
          : group_rms_norm_backward(images(dx.data()), dw, db, images(dy.data()), images(x.data()), groups, w, options);
      // A step of 2^-17 leaves an error of about 2^-34 times the third derivative.
      constexpr double kNear = 1e-7;
      for (std::size_t i = 0; i < kElements; ++i) ASSERT_NEAR(dx[i], difference(x[i]), kNear) << groups << " " << i;
      for (std::size_t c = 0; c < kC; ++c) {
        ASSERT_NEAR(dweight[c], difference(weight[c]), kNear);
        ASSERT_NEAR(dbias[c], difference(bias[c]), kNear);
      }
    }
  }
}

TEST(Channels, a_nan_stays_in_its_pixel_or_group) {
  std::vector<float> x = numbers<float>(kElements, 1), out(kElements);
  x[static_cast<std::size_t>(4 * kPixels + 7)] =
      std::numeric_limits<float>::quiet_NaN();  // image 0, channel 4, pixel 7
  rms_norm_channels(images(out.data()), images(x.data()));
  for (std::size_t i = 0; i < kElements; ++i) {
    EXPECT_EQ(std::isnan(out[i]), i < kC * kPixels && i % kPixels == 7) << i;
  }
  group_rms_norm(images(out.data()), images(x.data()), 3);
  for (std::size_t i = 0; i < kElements; ++i) {
    EXPECT_EQ(std::isnan(out[i]), i / kPixels == 4 || i / kPixels == 5) << i;
  }
}

TEST(Channels, without_images_gradients_are_zero_or_stay) {
  std::vector<float> dweight(kC, 3.0F), dbias(kC, 4.0F);
  const View none(static_cast<float*>(nullptr), {0, kC, kH, kW});
  RmsNormBackwardOptions add;
  add.accumulate = true;
  rms_norm_channels_backward(none, vector(dweight.data(), kC), vector(dbias.data(), kC), none, none, {}, add);
  EXPECT_EQ(dweight, std::vector<float>(kC, 3.0F));
  group_rms_norm_backward(none, vector(dweight.data(), kC), vector(dbias.data(), kC), none, none, 2);
  EXPECT_EQ(dweight, std::vector<float>(kC, 0.0F));
  EXPECT_EQ(dbias, std::vector<float>(kC, 0.0F));
}

TEST(Channels, wrong_arguments_are_named) {
  std::vector<float> x(kElements, 1.0F), out(kElements, 5.0F), weight(kC + 1, 1.0F);
  const View good = images(x.data()), result = images(out.data());
  EXPECT_EQ(try_rms_norm_channels(matrix(out.data(), 2, 3), matrix(x.data(), 2, 3)).message,
            "rn_rms_norm_channels: x.rank is 2; it must be from 3 to 8: batch, channels, pixels");
  EXPECT_EQ(try_rms_norm_channels(result, good, vector(weight.data(), kC + 1)).message,
            "rn_rms_norm_channels: weight.shape[0] is 7; it must be 6, the size of x.shape[1]");
  EXPECT_EQ(try_group_rms_norm(result, good, 4).message,
            "rn_group_rms_norm: groups is 4; it must be a divisor of 6, the channels of x");
  EXPECT_EQ(try_group_rms_norm(result, good, 0).message,
            "rn_group_rms_norm: groups is 0; it must be a divisor of 6, the channels of x");
  EXPECT_EQ(try_rms_norm_channels(result, good, {}, {}, {.partial = 2}).message,
            "rn_rms_norm_channels: options.partial is 2; it must be 0");
  EXPECT_EQ(try_rms_norm_channels(result, View(x.data(), {kN, kC, kH, 2}, {90, 15, 5, 2})).message,
            "rn_rms_norm_channels: x.strides[3] is 2; it must be 1 on the last axis");
  EXPECT_EQ(try_rms_norm_channels(View(x.data() + 1, {kN, kC, kH, kW - 1}, {90, 15, 5, 1}),
                                  View(x.data(), {kN, kC, kH, kW - 1}, {90, 15, 5, 1}))
                .code,
            RN_INVALID_VALUE);
  rn_view view = rn_tensor(x.data(), RN_F32, 3, good.get()->shape), to = rn_tensor(out.data(), RN_F32, 3, view.shape);
  EXPECT_EQ(rn_group_rms_norm_backward(&to, nullptr, nullptr, &view, &view, 2, nullptr, nullptr, nullptr, nullptr),
            RN_INVALID_TYPE);
  EXPECT_STREQ(rn_last_error(),
               "rn_group_rms_norm_backward: scratch is NULL; it must be given, see "
               "rn_group_rms_norm_scratch_bytes");
  EXPECT_EQ(out, std::vector<float>(kElements, 5.0F));
  EXPECT_EQ(rn_rms_norm_channels_scratch_bytes(1, 0, 4), -1);
  EXPECT_EQ(rn_group_rms_norm_scratch_bytes(-1, 3), -1);
}

}  // namespace
}  // namespace rmsnorm
