// The norm of Q and K with rotary embedding: what the generic tests of operations do not ask.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "reference/budgets.h"
#include "reference/qk_norm_rope.h"
#include "reference/rms_norm.h"
#include "reference/ulp.h"
#include "reference/values.h"
#include "rmsnorm/rmsnorm.hpp"
#include "support/environment.h"
#include "support/guarded.h"

namespace rmsnorm::test {
namespace {

using reference::Quad;

constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<bf16> normal_bf16(std::int64_t count, std::uint64_t seed,
                              reference::Values values = reference::Values::kNormal) {
  std::vector<bf16> list(at(count));
  reference::fill_row(list.data(), values, RN_BF16, seed, reference::Stream::kX, 0, count);
  return list;
}

std::vector<float> normal(std::int64_t count, std::uint64_t seed) {
  std::vector<float> list(at(count));
  reference::fill_row(list.data(), reference::Values::kNormal, RN_F32, seed, reference::Stream::kX, 0, count);
  return list;
}

// Cosines and sines of angles that differ for every position and column.
void fill_table(float* table, std::int64_t positions, std::int64_t rotary_dim) {
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
      table[p * rotary_dim + i] = static_cast<float>(std::cos(angle));
      table[p * rotary_dim + rotary_dim / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
}

TEST(QkNormRope, known_numbers) {
  // Mean square 25 / 2 and epsilon 0: y = 3, 4 over sqrt(12.5); a quarter turn makes -4, 3 of it.
  const float q[] = {3, 4}, table[] = {0, 1};
  float out[2];
  QkNormRopeOptions options;
  options.epsilon = 0;
  for (const auto layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
    options.rope_layout = layout;
    qk_norm_rope(View(out, {1, 1, 2}), {}, View(q, {1, 1, 2}), {}, {}, {}, matrix(table, 1, 2), {}, options);
    EXPECT_EQ(out[0], -4 * static_cast<float>(1 / std::sqrt(12.5)));
    EXPECT_EQ(out[1], 3 * static_cast<float>(1 / std::sqrt(12.5)));
  }
}

// Packed Q, K and V in bf16, 16 + 4 + 4 heads; both layouts of rotation, both roundings; the table ends at a page that
// may not be read. Against the reference, of many tokens a sample; V keeps its bytes.
TEST(PublicFaults, BL64_partial_rotary_on_a_packed_buffer) {
  constexpr std::int64_t kQ = 16, kK = 4, kHeads = kQ + 2 * kK;
  struct Dims {
    std::int64_t head, rotary;
  };
  for (const Dims d : {Dims{128, 64}, Dims{256, 64}, Dims{128, 128}, Dims{80, 20}, Dims{128, 0}}) {
    for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{7}, std::int64_t{reduced() ? 20 : 2048}}) {
      const std::vector<bf16> before = normal_bf16(tokens * kHeads * d.head, 3);
      const std::vector<bf16> weight[] = {normal_bf16(d.head, 4, reference::Values::kWeight),
                                          normal_bf16(d.head, 5, reference::Values::kWeight)};
      GuardedBuffer memory(at(tokens * std::max<std::int64_t>(d.rotary, 1)) * sizeof(float), Guard::kBehind);
      auto* table = reinterpret_cast<float*>(memory.data());
      fill_table(table, tokens, d.rotary);
      std::vector<std::int32_t> positions;
      for (std::int64_t t = 0; t < tokens; ++t) positions.push_back(static_cast<std::int32_t>((t * 5 + 3) % tokens));
      for (const auto layout : {RopeLayout::kHalfSplit, RopeLayout::kInterleaved}) {
        for (const auto rounding : {Rounding::kOnce, Rounding::kBeforeWeight}) {
          std::vector<bf16> qkv = before;
          const View packed(qkv.data(), {tokens, kHeads, d.head});
          const View q = heads(packed, 0, kQ), k = heads(packed, kQ, kK);
          QkNormRopeOptions options;
          options.rope_layout = layout;
          options.rounding = rounding;
          qk_norm_rope(q, k, q, k, vector(weight[0].data(), d.head), vector(weight[1].data(), d.head),
                       d.rotary == 0 ? View() : matrix(table, tokens, d.rotary), vector(positions.data(), tokens),
                       options);
          const rn_rms_norm_options norm = {1e-6, 0, RN_EPSILON_INSIDE, static_cast<rn_rounding>(rounding), 0};
          for (std::int64_t row = 0; row < tokens * kHeads; ++row) {
            const std::int64_t head = row % kHeads;
            const std::size_t bytes = at(d.head) * sizeof(bf16);
            if (head >= kQ + kK) {  // V
              ASSERT_EQ(std::memcmp(&qkv[at(row * d.head)], &before[at(row * d.head)], bytes), 0);
              continue;
            }
            if (tokens > 20 && row % 97 != 0) continue;  // 97 and the number of heads have no common divisor
            std::vector<double> x(at(d.head)), w(at(d.head)), cos_sin(at(d.rotary));
            for (std::int64_t i = 0; i < d.head; ++i) {
              x[at(i)] = reference::load(RN_BF16, before.data(), row * d.head + i);
              w[at(i)] = reference::load(RN_BF16, weight[head < kQ ? 0 : 1].data(), i);
            }
            for (std::int64_t i = 0; i < d.rotary; ++i) {
              cos_sin[at(i)] = static_cast<double>(table[positions[at(row / kHeads)] * d.rotary + i]);
            }
            std::vector<Quad> y(at(d.head)), addends(at(d.head));
            reference::rms_norm(y.data(), x.data(), d.head, RN_BF16, {w.data(), nullptr, 0}, norm);
            if (rounding == Rounding::kBeforeWeight) {
              for (Quad& v : y) v = reference::round_to(RN_BF16, v);
            }
            reference::rope(y.data(), addends.data(), d.head, cos_sin.data(), d.rotary,
                            static_cast<rn_rope_layout>(layout));
            for (std::int64_t i = 0; i < d.head; ++i) {
              const double found = reference::load(RN_BF16, qkv.data(), row * d.head + i);
              const Quad share =
                  reference::kAddend * reference::ulp_at(RN_F32, addends[at(i)]) / reference::ulp_at(RN_BF16, y[at(i)]);
              ASSERT_LE(reference::ulp_distance(RN_BF16, found, y[at(i)]),
                        reference::kRounded + (i < d.rotary ? static_cast<double>(share) : 0))
                  << "row " << row << " column " << i;
            }
          }
        }
      }
    }
  }
}

// Separate, permuted, reversed and packed tensors give the same bits; weights of each head; batches.
TEST(QkNormRope, any_layout_gives_the_same_bits) {
  constexpr std::int64_t kBatch = 2, kTokens = 5, kHeads = 3, kDim = 36, kCount = kBatch * kTokens * kHeads * kDim;
  const std::vector<float> q = normal(kCount, 1), weight = normal(kHeads * kDim, 2);
  std::vector<float> table(kTokens * 20), expected(kCount), out(kCount);
  fill_table(table.data(), kTokens, 20);
  const View cos_sin = matrix(table.data(), kTokens, 20), w(weight.data(), {kHeads, kDim});
  const View dense(q.data(), {kBatch, kTokens, kHeads, kDim});
  qk_norm_rope(View(expected.data(), {kBatch, kTokens, kHeads, kDim}), {}, dense, {}, w, {}, cos_sin);

  // Out as [batch, heads, tokens, dim], seen with tokens before heads.
  qk_norm_rope(View(out.data(), {kBatch, kTokens, kHeads, kDim}, {kHeads * kTokens * kDim, kDim, kTokens * kDim, 1}),
               {}, dense, {}, w, {}, cos_sin);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t h = 0; h < kHeads; ++h) {
        ASSERT_EQ(std::memcmp(&out[at(((b * kHeads + h) * kTokens + t) * kDim)],
                              &expected[at(((b * kTokens + t) * kHeads + h) * kDim)], kDim * sizeof(float)),
                  0);
      }
    }
  }
  // Tokens and positions backwards, K in the place of Q, in place.
  std::vector<float> in_place = q;
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < kBatch * kTokens; ++i) positions.push_back((kBatch * kTokens - 1 - i) % kTokens);
  const std::int64_t last = (kBatch * kTokens - 1) * kHeads * kDim;
  const View reversed(in_place.data() + last, {kBatch * kTokens, kHeads, kDim}, {-kHeads * kDim, kDim, 1});
  const View none(in_place.data(), {kBatch * kTokens, 0, kDim});
  qk_norm_rope(none, reversed, none, reversed, {}, w, cos_sin, vector(positions.data(), kBatch * kTokens));
  EXPECT_EQ(std::memcmp(in_place.data(), expected.data(), kCount * sizeof(float)), 0);
}

TEST(QkNormRope, special_values_stay_in_their_head) {
  constexpr std::int64_t kHeads = 4, kDim = 64;
  std::vector<float> q = normal(kHeads * kDim, 1), clean = q, out(q.size()), without(q.size());
  q[5] = std::numeric_limits<float>::quiet_NaN();
  for (std::int64_t i = 0; i < kDim; ++i) q[at(2 * kDim + i)] = 0;
  std::vector<float> table(kDim);
  fill_table(table.data(), 1, kDim);
  const auto run = [&](std::vector<float>& to, const std::vector<float>& from) {
    qk_norm_rope(View(to.data(), {1, kHeads, kDim}), {}, View(from.data(), {1, kHeads, kDim}), {}, {}, {},
                 matrix(table.data(), 1, kDim));
  };
  run(out, q);
  run(without, clean);
  for (std::int64_t i = 0; i < kDim; ++i) {
    EXPECT_TRUE(std::isnan(out[at(i)]));
    EXPECT_EQ(out[at(kDim + i)], without[at(kDim + i)]);
    EXPECT_EQ(out[at(2 * kDim + i)], 0);
    EXPECT_EQ(out[at(3 * kDim + i)], without[at(3 * kDim + i)]);
  }
}

std::string message(const Status& status) { return status.ok() ? "no error" : status.message; }

TEST(QkNormRope, errors_name_the_value_and_the_rule) {
  std::vector<float> memory = normal(6 * 4 * 8, 1), table(8 * 8);
  const std::vector<float> before = memory;
  const View packed(memory.data(), {6, 4, 8}), q = heads(packed, 0, 2), k = heads(packed, 2, 1);
  const View cos_sin = matrix(table.data(), 8, 8);
  std::vector<std::int32_t> positions = {0, 1, 2, 3, 4, 8};
  const auto error = [](const View& q_out, const View& k_out, const View& q_in, const View& k_in,
                        const View& table_view = {}, const View& position_view = {}) {
    return message(try_qk_norm_rope(q_out, k_out, q_in, k_in, {}, {}, table_view, position_view));
  };
  EXPECT_EQ(error(q, k, q, k, cos_sin, vector(positions.data(), 6)),
            "rn_qk_norm_rope: the position of token 5 is 8; it must be from 0 to 7, a row of cos_sin");
  positions[5] = -1;
  EXPECT_EQ(error(q, k, q, k, cos_sin, vector(positions.data(), 6)),
            "rn_qk_norm_rope: the position of token 5 is -1; it must be from 0 to 7, a row of cos_sin");
  EXPECT_EQ(error(q, k, q, k, matrix(table.data(), 5, 8)),
            "rn_qk_norm_rope: the position of token 5 is 5; it must be from 0 to 4, a row of cos_sin");
  EXPECT_EQ(error(q, k, q, k, matrix(table.data(), 6, 7)),
            "rn_qk_norm_rope: cos_sin.shape[1] is 7; it must be even and at most 8, the columns of q");
  EXPECT_EQ(error(q, k, q, k, matrix(table.data(), 6, 10)),
            "rn_qk_norm_rope: cos_sin.shape[1] is 10; it must be even and at most 8, the columns of q");
  EXPECT_EQ(error(q, k, q, k, cos_sin, vector(positions.data(), 5)),
            "rn_qk_norm_rope: positions.shape[0] is 5; it must be 6, the size of q.shape[0]");
  EXPECT_EQ(error({}, k, q, k), "rn_qk_norm_rope: q_out is NULL; it must be a view");
  EXPECT_EQ(error(q, {}, q, k), "rn_qk_norm_rope: k_out is NULL; it must be a view");
  EXPECT_EQ(error(heads(packed, 0, 1), k, q, k),
            "rn_qk_norm_rope: q_out.shape[1] is 1; it must be 2, the size of q.shape[1]");
  EXPECT_EQ(error(q, View(memory.data(), {5, 1, 8}), q, View(memory.data(), {5, 1, 8})),
            "rn_qk_norm_rope: k.shape[0] is 5; it must be 6, the size of q.shape[0]");
  EXPECT_NE(error(heads(packed, 1, 2), {}, q, {}).find("overlaps q in bytes"), std::string::npos);
  EXPECT_NE(error(q, heads(packed, 1, 1), q, k).find("overlaps"), std::string::npos);
  EXPECT_NE(error(q, {}, q, {}, View(memory.data(), {8, 8}, {8, 1})).find("overlaps cos_sin"), std::string::npos);
  EXPECT_NE(error(heads(packed, 3, 2), {}, q, {}).find("q_out.rank is -1"), std::string::npos);
  EXPECT_EQ(error(vector(memory.data(), 8), {}, vector(memory.data(), 8), {}),
            "rn_qk_norm_rope: q.rank is 1; it must be from 2, for heads and columns, to 8");
  EXPECT_EQ(memory, before);
  EXPECT_EQ(error(View(memory.data(), {0, 2, 8}), {}, View(memory.data(), {0, 2, 8}), {}, cos_sin), "no error");
  EXPECT_EQ(memory, before);
}

}  // namespace
}  // namespace rmsnorm::test
