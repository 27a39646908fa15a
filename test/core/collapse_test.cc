// Checked calls visit the same rows of all operands together, however their axes were merged and ordered.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "arguments.h"
#include "core/checks.h"

namespace rmsnorm {
namespace {

using rmsnorm_test::Arguments;

// Where the rows of out, x and weight and the elements of inv stand together.
using Place = std::array<const char*, 4>;

std::vector<Place> places_of(const NormCall& call) {
  std::vector<Place> places = {{call.out.base, call.x.base, call.weight.base, call.inv.base}};
  for (int k = 0; k < call.leading; ++k) {
    std::vector<Place> next;
    for (const Place& place : places) {
      for (int64_t i = 0; i < call.shape[k]; ++i) {
        next.push_back({place[0] + i * call.out.strides[k], place[1] + i * call.x.strides[k],
                        place[2] + i * call.weight.strides[k], place[3] + i * call.inv.strides[k]});
      }
    }
    places = next;
  }
  std::sort(places.begin(), places.end());
  return places;
}

// The same from the views, by the definition in rmsnorm.h.
std::vector<Place> places_of(const NormArguments& a) {
  std::vector<Place> places;
  std::vector<int64_t> index(static_cast<size_t>(a.x->rank - 1), 0);
  const auto at = [&](const rn_view& view, int axes) {
    const auto* address = static_cast<const char*>(view.data);
    for (int k = 0; k < axes; ++k) {
      const size_t x_axis = static_cast<size_t>(k + a.x->rank - 1 - axes);
      if (view.shape[k] > 1) address += index[x_axis] * view.strides[k] * static_cast<int64_t>(rn_type_size(view.type));
    }
    return address;
  };
  for (;;) {
    places.push_back({at(*a.out, a.out->rank - 1), at(*a.x, a.x->rank - 1), at(*a.weight, a.weight->rank - 1),
                      at(*a.inv, a.x->rank - 1)});
    int k = a.x->rank - 2;
    while (k >= 0 && ++index[static_cast<size_t>(k)] == a.x->shape[k]) index[static_cast<size_t>(k--)] = 0;
    if (k < 0) break;
  }
  std::sort(places.begin(), places.end());
  return places;
}

NormCall checked(const NormArguments& a) {
  NormCall call;
  rn_execution execution;
  EXPECT_EQ(make_call(a, &call, &execution), RN_OK) << rn_last_error();
  return call;
}

NormArguments rms_norm_of(const rn_view* out, const rn_view* inv, const rn_view* x, const rn_view* weight) {
  NormArguments a = {.function = "rn_rms_norm", .norm = Norm::kRms, .add = false};
  a.out = out, a.inv = inv, a.x = x, a.weight = weight;
  return a;
}

alignas(64) char memory[4][1 << 16];

TEST(Collapse, DenseTensorsBecomeOneRunOfRows) {
  const int64_t shape[] = {2, 1, 3, 5, 8};
  const rn_view out = rn_tensor(memory[0], RN_F32, 5, shape);
  const rn_view x = rn_tensor(memory[1], RN_F32, 5, shape);
  const NormCall call = checked(rms_norm_of(&out, nullptr, &x, nullptr));
  ASSERT_EQ(call.leading, 1);
  EXPECT_EQ(call.shape[0], 30);
  EXPECT_EQ(call.rows, 30);
  EXPECT_EQ(call.cols, 8);
  EXPECT_EQ(call.partial, 8);
  EXPECT_EQ(call.x.strides[0], 32);
}

TEST(Collapse, OneRowHasNoLeadingAxis) {
  const rn_view out = rn_matrix(memory[0], RN_F32, 1, 8);
  const rn_view x = rn_matrix(memory[1], RN_F32, 1, 8);
  EXPECT_EQ(checked(rms_norm_of(&out, nullptr, &x, nullptr)).leading, 0);
}

TEST(Collapse, OneWeightPerHeadKeepsTheHeads) {
  const int64_t shape[] = {6, 4, 8};
  const rn_view out = rn_tensor(memory[0], RN_F32, 3, shape);
  const rn_view x = rn_tensor(memory[1], RN_F32, 3, shape);
  const rn_view weight = rn_matrix(memory[2], RN_F32, 4, 8);
  const NormCall call = checked(rms_norm_of(&out, nullptr, &x, &weight));
  ASSERT_EQ(call.leading, 2);
  EXPECT_EQ(call.weight.strides[0], 0);
  EXPECT_EQ(call.weight.strides[1], 32);
}

TEST(Collapse, PermutedViewsAreWalkedInMemoryOrder) {
  // [B, H, S, D] over memory [B, S, H, D]
  const int64_t shape[] = {2, 4, 6, 8};
  rn_view x = rn_tensor(memory[1], RN_F32, 4, shape);
  x.strides[1] = 8;
  x.strides[2] = 32;
  rn_view out = x;
  out.data = memory[0];
  const NormCall call = checked(rms_norm_of(&out, nullptr, &x, nullptr));
  ASSERT_EQ(call.leading, 1);
  EXPECT_EQ(call.shape[0], 48);
  EXPECT_EQ(call.out.strides[0], 32);
}

TEST(Collapse, RandomCallsKeepTheirRows) {
  std::mt19937 random(3);
  int merged = 0;
  for (int sample = 0; sample < 5000; ++sample) {
    const int rank = 1 + static_cast<int>(random() % 5);
    int64_t shape[5];
    for (int k = 0; k < rank; ++k) shape[k] = 1 + static_cast<int64_t>(random() % 4);
    rn_view out = rn_tensor(memory[0] + (1 << 15), RN_BF16, rank, shape);
    rn_view x = rn_tensor(memory[1] + (1 << 15), RN_BF16, rank, shape);
    rn_view inv = rank == 1 ? rn_vector(memory[3], RN_F32, 1) : rn_tensor(memory[3], RN_F32, rank - 1, shape);
    const int weight_rank = 1 + static_cast<int>(random() % static_cast<uint32_t>(rank));
    int64_t weight_shape[5];
    for (int k = 0; k < weight_rank; ++k) {
      const int64_t size = shape[k + rank - weight_rank];
      weight_shape[k] = k + 1 < weight_rank && random() % 2 == 0 ? 1 : size;
    }
    const rn_view weight = rn_tensor(memory[2], RN_F32, weight_rank, weight_shape);
    // Some permute the order of out's axes in memory, some reverse axes, some leave padding between rows.
    if (random() % 2 == 0) {
      int64_t stride = shape[rank - 1] + static_cast<int64_t>(random() % 2) * 3;
      std::vector<int> order;
      for (int k = 0; k + 1 < rank; ++k) order.push_back(k);
      for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random() % k]);
      for (const int k : order) {
        out.strides[k] = random() % 4 == 0 ? -stride : stride;
        stride *= shape[k];
      }
    }
    for (int k = 0; k + 1 < rank; ++k) {
      if (random() % 8 == 0) x.strides[k] = 0;
    }
    const NormArguments arguments = rms_norm_of(&out, &inv, &x, &weight);
    const NormCall call = checked(arguments);
    ASSERT_EQ(places_of(call), places_of(arguments)) << "sample " << sample;
    for (int k = 0; k < call.leading; ++k) ASSERT_GT(call.shape[k], 1);
    merged += call.leading < rank - 1;
  }
  EXPECT_GT(merged, 1000);
}

}  // namespace
}  // namespace rmsnorm
