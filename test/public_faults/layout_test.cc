// Public faults of groups G to K, M and N: indices, views, aliasing, parameters, determinism, memory.
#include <cmath>
#include <thread>

#include "check/judge.h"
#include "public_faults/rows.h"
#include "support/environment.h"
#include "support/outcome.h"

namespace rmsnorm::test {
namespace {

using check::Case;
using check::Op;
using reference::Values;

TEST(PublicFaults, BL29_row_counts_around_65536) {
  for (const std::int64_t rows : {65535, 65536, 65537}) {
    for (const std::int64_t cols : {4, 128}) {
      if (cols > 4 && (reduced() || rows < 65537)) continue;
      Tensor x = Tensor::filled(RN_F32, rows, cols, Values::kWhole);
      const Tensor out = rms_norm(x, nullptr, rms_options(1));
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < cols; ++i) sum += x[r * cols + i] * x[r * cols + i];
        const double inv = 1 / std::sqrt(sum / static_cast<double>(cols) + 1);
        for (std::int64_t i = 0; i < cols; ++i) {
          ASSERT_LE(reference::ulp_distance(RN_F32, out[r * cols + i], x[r * cols + i] * inv), 3.01) << r << " " << i;
        }
      }
    }
  }
  // [4, 1, 65536, 1] normalised over the first axis: a view with four columns needs unit stride, so it is refused.
  Tensor x(RN_F32, 4, 65536, 1);
  const std::int64_t shape[] = {65536, 4};
  rn_view view = rn_tensor(x.data(), RN_F32, 2, shape);
  view.strides[0] = 1;
  view.strides[1] = 65536;
  EXPECT_EQ(rn_rms_norm(&view, nullptr, &view, nullptr, nullptr, nullptr, nullptr), RN_INVALID_VALUE);
}

TEST(PublicFaults, BL30_column_strides_are_refused_not_ignored) {
  Tensor x = Tensor::filled(RN_F32, 6, 8, Values::kNormal), out(RN_F32, 6, 8, 7), weight(RN_F32, 1, 8, 2);
  rn_view transposed = rn_matrix(x.data(), RN_F32, 8, 6), sliced = rn_matrix(x.data(), RN_F32, 6, 4);
  transposed.strides[0] = 1;
  transposed.strides[1] = 8;
  sliced.strides[0] = 8;
  sliced.strides[1] = 2;
  for (const rn_view& view : {transposed, sliced}) {
    const std::int64_t cols = view.shape[1];
    const rn_view o = rn_matrix(out.data(), RN_F32, view.shape[0], cols), w = rn_vector(weight.data(), RN_F32, cols);
    EXPECT_EQ(rn_rms_norm(&o, nullptr, &view, nullptr, nullptr, nullptr, nullptr), RN_INVALID_VALUE);
    EXPECT_EQ(rn_rms_norm(&o, nullptr, &view, &w, nullptr, nullptr, nullptr), RN_INVALID_VALUE);
    EXPECT_NE(std::string(rn_last_error()).find("stride"), std::string::npos) << rn_last_error();
  }
  for (std::int64_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], 7);
}

// Q of a packed QKV buffer, [tokens, heads, head_dim] with strides (3072, 128, 1), and a permuted [B, H, S, D].
TEST(PublicFaults, BL31_views_with_several_row_strides) {
  constexpr std::int64_t kTokens = 9, kHeads = 16, kDim = 128, kPacked = (16 + 4 + 4) * 128;
  Tensor qkv = Tensor::filled(RN_BF16, kTokens, kPacked, Values::kNormal);
  Tensor weight = Tensor::filled(RN_BF16, 1, kDim, Values::kWeight);
  Tensor heads(RN_BF16, kTokens * kHeads, kDim);  // the same numbers, dense
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t i = 0; i < kHeads * kDim; ++i) heads.set(t * kHeads * kDim + i, qkv[t * kPacked + i]);
  }
  const Tensor expected = rms_norm(heads, &weight, rn_rms_norm_defaults());

  const std::int64_t shape[] = {kTokens, kHeads, kDim};
  rn_view q = rn_tensor(qkv.data(), RN_BF16, 3, shape);
  q.strides[0] = kPacked;
  const rn_view w = weight.vector();
  Tensor dense(RN_BF16, kTokens * kHeads, kDim, 7);
  const rn_view dense_view = rn_tensor(dense.data(), RN_BF16, 3, shape);
  ASSERT_EQ(rn_rms_norm(&dense_view, nullptr, &q, &w, nullptr, nullptr, nullptr), RN_OK) << rn_last_error();
  EXPECT_EQ(dense.hash(), expected.hash());

  Tensor before = qkv;
  ASSERT_EQ(rn_rms_norm(&q, nullptr, &q, &w, nullptr, nullptr, nullptr), RN_OK) << rn_last_error();  // in place
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t i = 0; i < kPacked; ++i) {
      const double wanted = i < kHeads * kDim ? expected[t * kHeads * kDim + i] : before[t * kPacked + i];
      ASSERT_EQ(qkv[t * kPacked + i], wanted) << t << " " << i;
    }
  }

  // Memory [tokens, heads, dim] seen as [heads, tokens, dim].
  const std::int64_t swapped_shape[] = {1, kHeads, kTokens, kDim};
  rn_view swapped = rn_tensor(heads.data(), RN_BF16, 4, swapped_shape);
  swapped.strides[1] = kDim;
  swapped.strides[2] = kHeads * kDim;
  Tensor out(RN_BF16, kTokens * kHeads, kDim, 7);
  const rn_view out_view = rn_tensor(out.data(), RN_BF16, 4, swapped_shape);
  ASSERT_EQ(rn_rms_norm(&out_view, nullptr, &swapped, &w, nullptr, nullptr, nullptr), RN_OK) << rn_last_error();
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kDim; ++i) {
        ASSERT_EQ(out[(h * kTokens + t) * kDim + i], expected[(t * kHeads + h) * kDim + i]);
      }
    }
  }
}

TEST(PublicFaults, BL36_rms_is_not_the_standard_deviation) {
  Tensor row(RN_F32, 1, 10), ones(RN_F32, 1, 10, 1);
  for (std::int64_t i = 0; i < 10; ++i) row.set(i, static_cast<double>(i));
  EXPECT_NEAR(rms_norm(row, &ones, rms_options(0))[9], 1.68585, 5e-6);

  // Two and three trailing axes with a weight of their full shape: the same as flattened.
  Tensor x = Tensor::filled(RN_F32, 2, 3 * 4 * 5, Values::kNormal),
         weight = Tensor::filled(RN_F32, 1, 60, Values::kWeight);
  const Tensor three = rms_norm(x, &weight, rms_options(1e-6));
  const std::int64_t shape[] = {2, 3, 20}, weight_shape[] = {1, 3, 20};
  Tensor out(RN_F32, 2, 60);
  const rn_view o = rn_tensor(out.data(), RN_F32, 3, shape), i = rn_tensor(x.data(), RN_F32, 3, shape);
  rn_view w = rn_tensor(weight.data(), RN_F32, 3, weight_shape);
  w.shape[0] = 2;
  w.strides[0] = 0;  // shared by the first axis
  ASSERT_EQ(rn_rms_norm(&o, nullptr, &i, &w, nullptr, nullptr, nullptr), RN_OK) << rn_last_error();
  for (std::int64_t r = 0; r < 6; ++r) {
    double sum = 0;
    for (std::int64_t k = 0; k < 20; ++k) sum += x[r * 20 + k] * x[r * 20 + k];
    for (std::int64_t k = 0; k < 20; ++k) {
      const double exact = x[r * 20 + k] / std::sqrt(sum / 20 + 1e-6) * weight[(r % 3) * 20 + k];
      EXPECT_LE(reference::ulp_distance(RN_F32, out[r * 20 + k], exact), 3);
    }
  }
  EXPECT_NE(three.hash(), out.hash());
}

TEST(PublicFaults, BL38_inputs_never_change_and_aliases_are_exact_or_refused) {
  for (const Op op : check::kAllOps) {
    for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
      Case c = check::make_case(op, type, 3, 130);
      if (op != Op::kCenter) c.weight = type;
      const check::Operands apart(c);
      ASSERT_EQ(check::call(c, apart), RN_OK) << rn_last_error();
      EXPECT_EQ(check::damage(c, apart), "");
      c.in_place = true;
      const check::Operands together(c, apart);
      ASSERT_EQ(check::call(c, together), RN_OK) << rn_last_error();
      EXPECT_EQ(together.x.hash(), apart.out.hash()) << check::command_line(c);
      EXPECT_EQ(together.sum(true).hash(), apart.sum(false).hash()) << check::command_line(c);

      // One row too far: an error, and nothing written.
      check::Matrix shared(type, 4, 130, 0, 0);
      shared.fill(Values::kNormal, 1, reference::Stream::kX);
      const std::uint64_t before = shared.hash();
      const rn_view x = rn_matrix(shared.row(0), type, 3, 130), next = rn_matrix(shared.row(1), type, 3, 130);
      if (op == Op::kRmsNorm) {
        EXPECT_EQ(rn_rms_norm(&next, nullptr, &x, nullptr, nullptr, nullptr, nullptr), RN_INVALID_VALUE);
      }
      if (op == Op::kCenter) {
        EXPECT_EQ(rn_center(&next, &x, nullptr), RN_INVALID_VALUE);
      }
      if (op == Op::kAddRmsNorm) {  // out may not be the residual
        const rn_view residual = apart.residual.view(), sum = apart.residual_out.view();
        EXPECT_EQ(rn_add_rms_norm(&residual, &sum, nullptr, &x, &residual, nullptr, nullptr, nullptr, nullptr),
                  RN_INVALID_VALUE);
      }
      EXPECT_EQ(shared.hash(), before);
    }
  }
}

TEST(PublicFaults, BL40_every_pair_of_types_and_every_rank) {
  const std::int64_t shape[] = {2, 3, 2, 33};
  for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
    for (const rn_type weight_type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
      const bool listed = type == RN_F64 ? weight_type == RN_F64 || weight_type == RN_F32 : weight_type != RN_F64;
      Tensor x = Tensor::filled(type, 12, 33, Values::kNormal);
      Tensor weight = Tensor::filled(weight_type, 1, 33, Values::kWeight);
      const rn_view w = weight.vector();
      std::uint64_t expected = 0;
      for (std::int32_t rank = 1; rank <= 4; ++rank) {  // 33 columns; the first row alone where the rank is 1
        Tensor out(type, 12, 33);
        std::int64_t folded[4] = {};
        for (int axis = 0; axis < rank; ++axis) folded[axis] = shape[4 - rank + axis];
        if (rank > 1) folded[0] = 12 / (rank == 2 ? 1 : rank == 3 ? 2 : 6);
        const rn_view o = rn_tensor(out.data(), type, rank, folded), i = rn_tensor(x.data(), type, rank, folded);
        const rn_status status = rn_rms_norm(&o, nullptr, &i, &w, nullptr, nullptr, nullptr);
        ASSERT_EQ(status, listed ? RN_OK : RN_INVALID_TYPE) << rn_last_error();
        const std::uint64_t hash =
            reference::hash_elements(reference::kHashSeed, type, out.data(), rank == 1 ? 33 : 396);
        if (rank == 2) expected = hash;
        if (rank > 2) {
          EXPECT_EQ(hash, expected) << rank;
        }
      }
    }
  }
}

TEST(PublicFaults, BL41_no_parameters_equal_ones_and_zeros) {
  for (const Op op : {Op::kRmsNorm, Op::kLayerNorm, Op::kAddRmsNorm, Op::kAddLayerNorm}) {
    for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
      Case c = check::make_case(op, type, 3, 77);
      const check::Operands without(c);
      ASSERT_EQ(check::call(c, without), RN_OK) << rn_last_error();
      c.weight = c.bias = type;
      check::Operands with(c);
      for (std::int64_t i = 0; i < 77; ++i) {
        reference::store(type, with.weight.row(0), i, 1);
        reference::store(type, with.bias.row(0), i, -0.0);
      }
      ASSERT_EQ(check::call(c, with), RN_OK) << rn_last_error();
      EXPECT_EQ(with.out.hash(), without.out.hash()) << check::command_line(c);
    }
  }
  // x <- x + 0.1 norm(x), 30 times, in bf16 and in f32: they drift apart by rounding only.
  Tensor narrow = Tensor::filled(RN_BF16, 1, 256, Values::kNormal), wide(RN_F32, 1, 256);
  for (std::int64_t i = 0; i < 256; ++i) wide.set(i, narrow[i]);
  for (int step = 0; step < 30; ++step) {
    const Tensor a = rms_norm(narrow, nullptr, rms_options(1e-6)), b = rms_norm(wide, nullptr, rms_options(1e-6));
    for (std::int64_t i = 0; i < 256; ++i) {
      narrow.set(i, narrow[i] + 0.1 * a[i]);
      wide.set(i, wide[i] + 0.1 * b[i]);
    }
  }
  double squares = 0, difference = 0;
  for (std::int64_t i = 0; i < 256; ++i) {
    squares += wide[i] * wide[i];
    difference += (wide[i] - narrow[i]) * (wide[i] - narrow[i]);
  }
  // Each step rounds by at most half an ulp, 2^-8 of the value; the errors of 30 steps add up like a random walk.
  EXPECT_LE(std::sqrt(difference / squares), std::sqrt(30.0) * 0x1p-8);
}

TEST(PublicFaults, BL49_a_rows_bits_do_not_depend_on_its_batch) {
  for (const Op op : check::kAllOps) {
    for (const rn_type type : {RN_F32, RN_BF16}) {
      const Case one = check::make_case(op, type, 1, 320);
      const check::Operands alone(one);
      ASSERT_EQ(check::call(one, alone), RN_OK) << rn_last_error();
      for (const std::int64_t rows : {2, 3, 64, 255, 256, 257, 4096}) {
        if (reduced() && rows > 300) continue;
        Case batch = check::make_case(op, type, rows, 320);
        batch.values = Values::kWhole;
        batch.threads = static_cast<std::int32_t>(rows % 4);
        batch.stride = rows % 2 == 0 ? 320 + 8 : 0;  // 16-byte and 64-byte aligned rows
        check::Operands o(batch);
        for (const std::int64_t place : {std::int64_t{0}, std::int64_t{1}, rows / 2, rows - 1}) {
          std::memcpy(o.x.row(place), alone.x_before.row(0), 320 * rn_type_size(type));
          if (is_add(op)) std::memcpy(o.residual.row(place), alone.residual_before.row(0), 320 * rn_type_size(type));
        }
        ASSERT_EQ(check::call(batch, o), RN_OK) << rn_last_error();
        for (const std::int64_t place : {std::int64_t{0}, std::int64_t{1}, rows / 2, rows - 1}) {
          EXPECT_EQ(std::memcmp(o.out.row(place), alone.out.row(0), 320 * rn_type_size(type)), 0)
              << check::command_line(batch) << " row " << place;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rmsnorm::test
