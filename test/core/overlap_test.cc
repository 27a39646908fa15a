// The overlap search against a list of bytes, and on layouts of real tensors.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/overlap.h"

namespace rmsnorm {
namespace {

// A Region that owns its shape.
struct Sample {
  uintptr_t base = 0x100000;
  int64_t bytes = 1;
  std::vector<int64_t> shape, strides;

  Region region() const { return {base, bytes, static_cast<int>(shape.size()), shape.data(), strides.data()}; }

  // The first byte of each index.
  std::vector<uintptr_t> starts() const {
    std::vector<uintptr_t> all = {base};
    for (size_t k = 0; k < shape.size(); ++k) {
      std::vector<uintptr_t> next;
      for (const uintptr_t start : all) {
        for (int64_t i = 0; i < shape[k]; ++i) next.push_back(start + static_cast<uintptr_t>(i * strides[k]));
      }
      all = next;
    }
    return all;
  }

  // Every byte, as often as it is named.
  std::multiset<uintptr_t> all_bytes() const {
    std::multiset<uintptr_t> all;
    for (const uintptr_t start : starts()) {
      for (int64_t i = 0; i < bytes; ++i) all.insert(start + static_cast<uintptr_t>(i));
    }
    return all;
  }
};

// Engines are the same in every standard library; distributions are not.
int64_t from(std::mt19937& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
}

Sample random_sample(std::mt19937& random) {
  Sample sample;
  sample.bytes = from(random, 1, 8);
  const int64_t axes = from(random, 0, 4);
  for (int64_t k = 0; k < axes; ++k) {
    sample.shape.push_back(from(random, 1, 5));
    sample.strides.push_back(from(random, -60, 60));
  }
  if (random() % 4 == 0) {  // nested strides, where overlap is rare
    int64_t stride = sample.bytes;
    for (size_t k = 0; k < sample.shape.size(); ++k) {
      stride += from(random, -1, 3);
      sample.strides[k] = random() % 2 == 0 ? stride : -stride;
      stride *= sample.shape[k];
    }
  }
  sample.base += static_cast<uintptr_t>(from(random, 0, 200));
  return sample;
}

// Calls trial(random) often; it says whether there was an overlap. A tenth of the samples, at least, must go either way.
template <class Trial>
void expect_both_outcomes(unsigned seed, Trial trial) {
  std::mt19937 random(seed);
  int found = 0;
  constexpr int kSamples = 20000;
  for (int i = 0; i < kSamples; ++i) {
    SCOPED_TRACE("sample " + std::to_string(i));
    found += trial(random);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(found, kSamples / 10);
  EXPECT_LT(found, kSamples - kSamples / 10);
}

void expect_overlap(Overlap overlap, bool expected) { ASSERT_EQ(overlap, expected ? Overlap::kSome : Overlap::kNone); }

TEST(Overlap, AgreesWithAListOfBytes) {
  expect_both_outcomes(1, [](std::mt19937& random) {
    const Sample a = random_sample(random);
    const Sample b = random_sample(random);
    const auto bytes_of_b = b.all_bytes();
    bool meets = false;
    for (const uintptr_t byte : a.all_bytes()) meets = meets || bytes_of_b.contains(byte);
    expect_overlap(overlap(a.region(), b.region()), meets);
    expect_overlap(overlap(b.region(), a.region()), meets);
    return meets;
  });
}

TEST(Overlap, AgreesWithAListOfBytesOnOneRegion) {
  expect_both_outcomes(2, [](std::mt19937& random) {
    const Sample a = random_sample(random);
    const auto bytes = a.all_bytes();
    const bool meets = std::set<uintptr_t>(bytes.begin(), bytes.end()).size() != bytes.size();
    expect_overlap(overlap_with_itself(a.region()), meets);
    return meets;
  });
}

TEST(Overlap, PackedHeads) {
  // [tokens, heads, d] of Q and K in rows of 3072 bf16
  const Sample q{0x100000, 256, {100000, 16}, {6144, 256}};
  Sample k{0x100000 + 4096, 256, {100000, 4}, {6144, 256}};
  EXPECT_EQ(overlap(q.region(), k.region()), Overlap::kNone);
  EXPECT_EQ(overlap_with_itself(q.region()), Overlap::kNone);
  k.base -= 2;
  EXPECT_EQ(overlap(q.region(), k.region()), Overlap::kSome);
  k.base = 0x100000 + 6144 - 1024 + 2;  // the last K head would reach into the next token's Q
  EXPECT_EQ(overlap(q.region(), k.region()), Overlap::kSome);
}

TEST(Overlap, PermutedAndReversed) {
  const int64_t batch = 8, heads = 32, tokens = 4096, row = 256;
  // [B, H, S] over memory [B, S, H], tokens backwards
  const Sample permuted{0x100000 + static_cast<uintptr_t>((tokens - 1) * heads * row),
                        row,
                        {batch, heads, tokens},
                        {tokens * heads * row, row, -heads * row}};
  EXPECT_EQ(overlap_with_itself(permuted.region()), Overlap::kNone);
  EXPECT_EQ(overlap(permuted.region(), permuted.region()), Overlap::kSome);
  Sample behind = permuted;
  behind.base += static_cast<uintptr_t>(batch * tokens * heads * row);
  EXPECT_EQ(overlap(permuted.region(), behind.region()), Overlap::kNone);
  behind.base -= 1;
  EXPECT_EQ(overlap(permuted.region(), behind.region()), Overlap::kSome);
}

TEST(Overlap, EvenAndOddRowsUnderAPermutation) {
  // Rows of 64 bytes at even and at odd places of the same buffer; sizes that do not nest, but a common divisor of 128.
  const Sample even{0x100000, 64, {7, 1000, 333}, {128 * 1000, 128 * 3, 128 * 7}};
  Sample odd = even;
  odd.base += 64;
  EXPECT_EQ(overlap(even.region(), odd.region()), Overlap::kNone);
  odd.base -= 1;
  EXPECT_EQ(overlap(even.region(), odd.region()), Overlap::kSome);
}

TEST(Overlap, WindowsThatSlideAreFound) {
  const Sample windows{0x100000, 64, {1000000}, {60}};
  EXPECT_EQ(overlap_with_itself(windows.region()), Overlap::kSome);
  const Sample touching{0x100000, 64, {1000000}, {64}};
  EXPECT_EQ(overlap_with_itself(touching.region()), Overlap::kNone);
  const Sample far{0x100000, 64, {1000, 1000}, {1000064, 1000000}};  // 15625 * 1000064 would be 15626 * 1000000
  EXPECT_EQ(overlap_with_itself(far.region()), Overlap::kNone);
}

TEST(Overlap, HardStridesEndUndecidedAndSoon) {
  // Seven strides without structure or common divisor: deciding this is a knapsack.
  const std::vector<int64_t> strides = {12345678977, 9876543211, 7654321123, 5432112347,
                                        3456789013,  2345678917, 1234567891};
  const Sample a{uintptr_t{1} << 45, 1, {90, 90, 90, 90, 90, 90, 90}, strides};
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(overlap_with_itself(a.region()), Overlap::kUndecided);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
}

TEST(Overlap, SpansNearTheLimit) {
  const int64_t quarter = int64_t{1} << 58;
  const Sample a{uintptr_t{1} << 61, 16, {3, 2}, {quarter, quarter / 2}};
  EXPECT_EQ(overlap_with_itself(a.region()), Overlap::kNone);
  Sample b = a;
  b.base += 16;
  EXPECT_EQ(overlap(a.region(), b.region()), Overlap::kNone);
  b.base -= 1;
  b.strides = {-quarter, -quarter / 2};
  EXPECT_EQ(overlap(a.region(), b.region()), Overlap::kSome);
}

}  // namespace
}  // namespace rmsnorm
