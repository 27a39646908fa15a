// Nothing outside the operands is read or written: every operand between forbidden pages, on every target.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>

#include "check/operands.h"
#include "support/cases.h"
#include "support/environment.h"
#include "support/guarded.h"

namespace rmsnorm::test {
namespace {

using check::Case;
using check::Matrix;
using check::Op;

// A dense copy of a matrix that borders on a forbidden page, and its view.
struct GuardedMatrix {
  GuardedMatrix(const Matrix& source, Guard side)
      : row_bytes(static_cast<std::size_t>(source.cols()) * rn_type_size(source.type())),
        buffer(static_cast<std::size_t>(source.rows()) * row_bytes, side),
        view(rn_matrix(buffer.data(), source.type(), source.rows(), source.cols())),
        vector(rn_vector(buffer.data(), source.type(), source.rows() * source.cols())) {
    for (std::int64_t r = 0; r < source.rows(); ++r) {
      std::memcpy(buffer.data() + static_cast<std::size_t>(r) * row_bytes, source.row(r), row_bytes);
    }
  }

  bool equals(const Matrix& m) const {
    for (std::int64_t r = 0; r < m.rows(); ++r) {
      if (std::memcmp(buffer.data() + static_cast<std::size_t>(r) * row_bytes, m.row(r), row_bytes) != 0) return false;
    }
    return true;
  }

  std::size_t row_bytes;
  GuardedBuffer buffer;
  rn_view view, vector;
};

std::unique_ptr<GuardedMatrix> guarded(const Matrix& m, Guard side) {
  return m.present() ? std::make_unique<GuardedMatrix>(m, side) : nullptr;
}

const rn_view* matrix_of(const std::unique_ptr<GuardedMatrix>& m) { return m ? &m->view : nullptr; }
const rn_view* vector_of(const std::unique_ptr<GuardedMatrix>& m) { return m ? &m->vector : nullptr; }

void compare(const Case& c, Guard side, const check::Operands& expected) {
  const auto out = guarded(Matrix(c.out, c.rows, c.cols, 0, 0), side), x = guarded(expected.x_before, side),
             weight = guarded(expected.weight, side), bias = guarded(expected.bias, side),
             residual = guarded(expected.residual_before, side),
             sum = is_add(c.op) ? guarded(Matrix(c.residual_out, c.rows, c.cols, 0, 0), side) : nullptr,
             inv = expected.inv.present() ? guarded(Matrix(RN_F32, c.rows, 1, 0, 0), side) : nullptr,
             mean = expected.mean.present() ? guarded(Matrix(RN_F32, c.rows, 1, 0, 0), side) : nullptr;
  rn_rms_norm_options rms = rn_rms_norm_defaults();
  rms.rounding = c.rounding;
  const rn_layer_norm_options layer = rn_layer_norm_defaults();
  const rn_add_rms_norm_options add_rms{rms, c.norm_input};
  const rn_add_layer_norm_options add_layer{layer, c.norm_input};
  const rn_view *o = matrix_of(out), *i = matrix_of(x), *w = vector_of(weight), *b = vector_of(bias);
  const rn_view *r = matrix_of(residual), *s = matrix_of(sum), *v = vector_of(inv), *m = vector_of(mean);
  rn_status status = RN_OK;
  switch (c.op) {
    case Op::kRmsNorm:
      status = rn_rms_norm(o, v, i, w, b, &rms, nullptr);
      break;
    case Op::kLayerNorm:
      status = rn_layer_norm(o, m, v, i, w, b, &layer, nullptr);
      break;
    case Op::kAddRmsNorm:
      status = rn_add_rms_norm(o, s, v, i, r, w, b, &add_rms, nullptr);
      break;
    case Op::kAddLayerNorm:
      status = rn_add_layer_norm(o, s, m, v, i, r, w, b, &add_layer, nullptr);
      break;
    case Op::kCenter:
      status = rn_center(o, i, nullptr);
      break;
  }
  ASSERT_EQ(status, RN_OK) << rn_last_error();
  EXPECT_TRUE(out->equals(expected.out)) << check::command_line(c);
  EXPECT_TRUE(!sum || sum->equals(expected.residual_out)) << check::command_line(c);
}

class Guards : public testing::TestWithParam<std::tuple<Op, rn_type>> {};

TEST_P(Guards, NothingOutsideIsTouched) {
  const auto [op, type] = GetParam();
  std::vector<std::int64_t> cols;
  for (std::int64_t width = 1; width <= (reduced() ? 20 : 140); ++width) cols.push_back(width);
  for (const std::int64_t width : {255, 256, 257, 511, 513, 1023, 1025, 2047, 2049, 4097}) {
    if (!reduced() || width < 600) cols.push_back(width);
  }
  for (const std::string& target : supported_targets()) {
    const UseTarget use(target);
    for (const std::int64_t width : cols) {
      for (const std::int64_t rows : {1, 3}) {
        Case c = check::make_case(op, type, rows, width);
        c.target = target;
        const std::vector<rn_type> outs = out_types(type), weights = weight_types(type);
        c.out = outs[static_cast<std::size_t>(width) % outs.size()];
        if (op != Op::kCenter && width % 4 != 0) {
          c.weight = weights[static_cast<std::size_t>(width) % weights.size()];
          c.bias = weights[static_cast<std::size_t>(width / 3) % weights.size()];
        }
        if (is_rms(op)) c.rounding = static_cast<rn_rounding>(width % 3);
        const check::Operands expected(c);
        ASSERT_EQ(check::call(c, expected), RN_OK) << rn_last_error();
        std::optional<AsIfLarge> large;
        if (width % 2 == 1) large.emplace();
        for (const Guard side : {Guard::kBefore, Guard::kBehind}) {
          SCOPED_TRACE(check::command_line(c) + (side == Guard::kBefore ? ", guard before" : ", guard behind"));
          compare(c, side, expected);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Guards,
                         testing::Combine(testing::ValuesIn(check::kAllOps), testing::Values(RN_F32, RN_F16, RN_BF16)),
                         [](const auto& instance) {
                           return std::string(check::name_of(std::get<0>(instance.param))) + "_" +
                                  rn_type_name(std::get<1>(instance.param));
                         });

}  // namespace
}  // namespace rmsnorm::test
