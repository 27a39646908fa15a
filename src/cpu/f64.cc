// Rows of f64: portable code, for gradients and references rather than for speed.
#include "cpu/f64_norm.h"
#include "cpu/norm.h"

namespace rmsnorm {

namespace {

void f64_row(const NormCall& call, int64_t index) {
  const F64Row row{call, index};
  const F64Scale s = row_scale(row);
  if (char* mean = row.at(call.mean)) write(mean, RN_F64, 0, (s.mean + s.correction) / s.scale);
  if (char* inv = row.at(call.inv)) write(inv, RN_F64, 0, std::ldexp(s.inv.rounded() * s.scale, s.exponent));
  char* out = row.at(call.out);
  char* residual_out = row.at(call.residual_out);
  for (int64_t i = 0; i < call.cols; ++i) {
    const double x = row.element(i);
    const double y = normalised(row, s, x, i);
    if (residual_out != nullptr) write(residual_out, RN_F64, i, x);
    write(out, call.out.type, i, y);
  }
}

}  // namespace

void f64_rows(const NormCall& call, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) f64_row(call, row);
}

}  // namespace rmsnorm
