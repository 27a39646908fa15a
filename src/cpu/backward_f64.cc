// Backward of f64 rows: portable and compensated, scaled as the forward rows in f64.cc are.
#include "cpu/backward.h"
#include "cpu/f64_norm.h"

namespace rmsnorm {

namespace {

class F64Gradient {
 public:
  F64Gradient(const BackwardCall& call, int64_t row)
      : call_(call),
        layer_(call.norm == Norm::kLayer),
        row_(row),
        x_(row_address(call, call.x, row)),
        dy_(row_address(call, call.dy, row)),
        added_(row_address(call, call.d_residual_out, row)),
        saved_(row_address(call, call.inv, row)),
        dx_(row_address(call, call.dx, row)),
        dresidual_(row_address(call, call.dresidual, row)) {}

  void run(double* dweight, double* dbias) {
    Twofold mean_g, slope;  // slope: of the scaled row
    if (call_.slice) {
      take_totals(&mean_g, &slope);
    } else {
      find_scale();
      sum_gradients(&mean_g, &slope);
    }
    write_row(mean_g, slope, dweight, dbias);
  }

 private:
  void sum_gradients(Twofold* mean_g, Twofold* slope) const {
    CompensatedSum g_sum, gc_sum;
    for (int64_t i = 0; i < call_.cols; ++i) {
      if (layer_) g_sum.add(g(i));
      gc_sum.add(g(i) * centred(i));
    }
    *mean_g = g_sum.twofold() / Twofold{static_cast<double>(call_.cols)};
    *slope = gc_sum.twofold() / Twofold{static_cast<double>(call_.total_cols)} * slope_;
  }

  // Of a slice: what its whole row adds up to is given.
  void take_totals(Twofold* mean_g, Twofold* slope) {
    const double d = static_cast<double>(call_.total_cols);
    const auto total = [&](const Operand& of) { return read(row_address(call_, of, row_), RN_F64, 0); };
    const F64SliceScale s =
        slice_scale(layer_ ? total(call_.sum) : 0, total(call_.sum_squares), d, call_.epsilon, call_.epsilon_outside);
    scale_ = s.scale;
    inv_scale_ = s.own;
    mean_ = s.mean;
    correction_ = s.correction;
    set_inverse(s.mean_square);
    *mean_g = Twofold{layer_ ? total(call_.sum_gradients) : 0} / Twofold{d};
    *slope = Twofold{total(call_.sum_products) * inv_scale_} / Twofold{d} * slope_;
  }

  void write_row(Twofold mean_g, Twofold slope, double* dweight, double* dbias) const {
    for (int64_t i = 0; i < call_.cols; ++i) {
      const double dy = read(dy_, call_.dy.type, i);
      const double h = for_inverse(centred(i) * inv_).rounded();
      // The scale comes last: rows of 1e-315 have gradients beyond the range, whose terms must not meet as infinities.
      Twofold through = layer_ ? g(i) - mean_g : g(i);
      if (i < call_.partial) through = through - for_inverse(centred(i) * slope);
      double result =
          saved_ != nullptr ? (through * read(saved_, RN_F64, 0)).rounded() : (through * inv_).rounded() * inv_scale_;
      if (added_ != nullptr) result = read(added_, call_.d_residual_out.type, i) + result;
      if (dweight != nullptr) dweight[i] += dy * h;
      if (dbias != nullptr) dbias[i] += dy;
      if (dx_ != nullptr) write(dx_, call_.dx.type, i, result);
      if (dresidual_ != nullptr) write(dresidual_, call_.dresidual.type, i, result);
    }
  }

  Twofold factor(int64_t i) const {
    return with_offset(read(call_.weight.base, call_.weight.type, i), call_.weight_offset);
  }
  Twofold g(int64_t i) const {
    const double dy = read(dy_, call_.dy.type, i);
    return call_.weight.base == nullptr ? Twofold{dy} : factor(i) * dy;
  }
  Twofold centred(int64_t i) const {
    return Twofold{read(x_, RN_F64, i) * scale_} - Twofold{mean_} - Twofold{correction_};
  }

  // A product of the scaled row and what belongs to another scale.
  Twofold for_inverse(Twofold v) const {
    return inv_scale_ == scale_ ? v : scaled(v, std::ilogb(inv_scale_) - std::ilogb(scale_));
  }

  // inv_ is that of the scaled row; slope_: see F64Inverse.
  void find_scale() {
    const int64_t counted = layer_ ? call_.cols : call_.partial;
    const double root = call_.epsilon_outside ? call_.epsilon : std::sqrt(call_.epsilon);
    double peak = root;
    for (int64_t i = 0; i < counted; ++i) {
      const double magnitude = std::fabs(read(x_, RN_F64, i));
      if (magnitude < HUGE_VAL || (magnitude == HUGE_VAL && !layer_)) peak = std::max(peak, magnitude);
    }
    scale_ = inv_scale_ = scale_for(peak);
    if (layer_) {
      CompensatedSum sum;
      for (int64_t i = 0; i < counted; ++i) sum.add(read(x_, RN_F64, i) * scale_);
      const Twofold mean = sum.twofold() / Twofold{static_cast<double>(counted)};
      mean_ = mean.value;
      correction_ = std::isfinite(mean.rest) ? mean.rest : 0;
    }
    CompensatedSum squares;
    for (int64_t i = 0; i < counted; ++i) squares.add(centred(i) * centred(i));
    set_inverse(squares.twofold() / Twofold{static_cast<double>(counted)});
  }

  void set_inverse(Twofold mean_square) {
    const F64Inverse own = inverse(mean_square, call_.epsilon, inv_scale_, call_.epsilon_outside);
    inv_ = own.inv;
    slope_ = own.slope;
    if (saved_ == nullptr) return;
    inv_ = {read(saved_, RN_F64, 0) / inv_scale_};
    const Twofold rms = square_root(mean_square);
    slope_ = !call_.epsilon_outside ? inv_ * inv_ : rms.value == 0 ? Twofold{0} : inv_ / rms;
  }

  const BackwardCall& call_;
  bool layer_;
  int64_t row_;
  const char *x_, *dy_, *added_, *saved_;
  char *dx_, *dresidual_;
  double scale_ = 1, mean_ = 0, correction_ = 0;
  double inv_scale_ = 1;  // what the row is scaled by that inv_ and slope_ belong to: scale_, but for a slice
  Twofold inv_ = {0}, slope_ = {0};
};

}  // namespace

void f64_backward_rows(const BackwardCall& call, int64_t begin, int64_t end, double* dweight, double* dbias) {
  for (int64_t row = begin; row < end; ++row) F64Gradient(call, row).run(dweight, dbias);
}

}  // namespace rmsnorm
