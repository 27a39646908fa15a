#include "check/judge.h"

#include <algorithm>
#include <cstdio>

#include "check/norm_judge.h"
#include "reference/add_layer_norm.h"
#include "reference/add_rms_norm.h"
#include "reference/center.h"
#include "reference/inner_tie.h"
#include "reference/ulp.h"

namespace rmsnorm::check {

using reference::absolute;
using reference::add_layer_norm;
using reference::add_rms_norm;
using reference::around_inner_tie;
using reference::Budget;
using reference::budget;
using reference::center;
using reference::is_finite;
using reference::is_nan;
using reference::Judged;
using reference::kInnerTie;
using reference::kMeanOfMagnitudes;
using reference::kStatistic;
using reference::kStatisticF64;
using reference::kStatisticOfF32Sums;
using reference::layer_norm;
using reference::load;
using reference::Moments;
using reference::Parameters;
using reference::Quad;
using reference::rms_norm;
using reference::round_to;
using reference::sign_of;
using reference::ulp_at;
using reference::ulp_distance;
using reference::Unit;

namespace {

// The exact results of one row.
struct Expected {
  std::vector<double> x, residual, sum;
  std::vector<Quad> out;
  Quad inv = 0, mean = 0;
};

class Judge {
 public:
  Judge(const Case& c, const Operands& o) : c_(c), o_(o) {
    const std::size_t cols = static_cast<std::size_t>(c.cols);
    row_.x.resize(cols);
    row_.out.resize(cols);
    if (is_add(c.op)) {
      row_.residual.resize(cols);
      row_.sum.resize(cols);
    }
    weight_ = widen(o.weight);
    bias_ = widen(o.bias);
    parameters_ = {weight_.empty() ? nullptr : weight_.data(), bias_.empty() ? nullptr : bias_.data(), c.weight_offset};
    const Judged judged = is_rms(c.op) ? Judged::kRmsNorm : is_layer(c.op) ? Judged::kLayerNorm : Judged::kCenter;
    report_.budget = budget(judged, c.x, c.out, c.bias.has_value(), c.weight_offset != 0, c.rounding);
  }

  Report judge() {
    report_.error = damage(c_, o_);
    for (std::int64_t r = 0; r < c_.rows; ++r) {
      compute(r);
      judge_statistics(r);
      if (is_add(c_.op)) judge_sum(r);
      judge_out(r);
    }
    return report_;
  }

 private:
  static std::vector<double> widen(const Matrix& vector) {
    std::vector<double> values(vector.present() ? static_cast<std::size_t>(vector.cols()) : 0);
    if (vector.present()) vector.read_row(0, values.data());
    return values;
  }

  void compute(std::int64_t r) {
    o_.x_before.read_row(r, row_.x.data());
    if (is_add(c_.op)) o_.residual_before.read_row(r, row_.residual.data());
    const rn_rms_norm_options rms{c_.epsilon, c_.weight_offset, c_.epsilon_placement, c_.rounding, c_.partial};
    Quad* out = row_.out.data();
    switch (c_.op) {
      case Op::kRmsNorm:
        row_.inv = rms_norm(out, row_.x.data(), c_.cols, c_.x, parameters_, rms);
        break;
      case Op::kLayerNorm:
        take(layer_norm(out, row_.x.data(), c_.cols, parameters_, c_.epsilon));
        break;
      case Op::kAddRmsNorm:
        row_.inv = add_rms_norm(out, row_.sum.data(), row_.x.data(), row_.residual.data(), c_.cols, c_.x,
                                c_.residual_out, parameters_, {rms, c_.norm_input});
        break;
      case Op::kAddLayerNorm:
        take(add_layer_norm(out, row_.sum.data(), row_.x.data(), row_.residual.data(), c_.cols, c_.x, c_.residual_out,
                            parameters_, c_.epsilon, c_.norm_input));
        break;
      case Op::kCenter:
        center(out, row_.x.data(), c_.cols);
        break;
    }
  }

  void take(const Moments<Quad>& moments) {
    row_.mean = moments.mean;
    row_.inv = moments.inv_std;
  }

  void fault(const char* what, std::int64_t r, std::int64_t i, double found, Quad expected, double error,
             double allowed) {
    if (!report_.error.empty()) return;
    char text[256];
    std::snprintf(text, sizeof text, "%s[%lld, %lld] is %.17g (%a); exact is %.17g; error %.4g ulp, allowed %.4g", what,
                  static_cast<long long>(r), static_cast<long long>(i), found, found, static_cast<double>(expected),
                  error, allowed);
    report_.error = text;
  }

  void judge_statistics(std::int64_t r) {
    const bool wide = c_.x == RN_F64;
    const double allowed = wide ? kStatisticF64 : is_rms(c_.op) && is_16bit(c_.x) ? kStatisticOfF32Sums : kStatistic;
    if (o_.inv.present()) {
      const double found = load(o_.inv.type(), o_.inv.row(r), 0);
      const double error = ulp_distance(o_.inv.type(), found, row_.inv);
      if (!(error <= allowed)) fault(is_rms(c_.op) ? "inv_rms" : "inv_std", r, 0, found, row_.inv, error, allowed);
    }
    if (o_.mean.present()) {
      Quad magnitudes = 0;
      for (const double v : is_add(c_.op) ? row_.sum : row_.x) magnitudes += absolute(v);
      const double found = load(o_.mean.type(), o_.mean.row(r), 0);
      const Quad ulp = ulp_at(o_.mean.type(), row_.mean);
      const double error = ulp_distance(o_.mean.type(), found, row_.mean);
      const double slack = static_cast<double>(kMeanOfMagnitudes * magnitudes / c_.cols / ulp);
      if (error > allowed + (is_finite(slack) ? slack : 0)) {
        fault("mean", r, 0, found, row_.mean, error, allowed + slack);
      }
    }
  }

  void judge_sum(std::int64_t r) {
    const Matrix& stored = o_.sum(c_.in_place);
    for (std::int64_t i = 0; i < c_.cols; ++i) {
      const double found = load(stored.type(), stored.row(r), i);
      const double expected = row_.sum[static_cast<std::size_t>(i)];
      const bool equal = is_nan(expected) ? is_nan(found) : found == expected && sign_of(found) == sign_of(expected);
      if (!equal) fault("residual_out", r, i, found, expected, ulp_distance(stored.type(), found, expected), 0);
    }
  }

  // One unit of the budget, as a number.
  Quad unit(std::int64_t i, Quad row_scale) const {
    const Quad out = row_.out[static_cast<std::size_t>(i)];
    const Budget& b = report_.budget;
    switch (b.unit) {
      case Unit::kResult:
        return ulp_at(c_.out, out);
      case Unit::kLargestAddend:
        return ulp_at(RN_F32, largest_addend(parameters_, out, i));
      case Unit::kRow:
        return ulp_at(c_.out, row_scale);
      default:
        break;
    }
    return ulp_at(c_.out, out) + b.addend / b.ulps * ulp_at(RN_F32, largest_addend(parameters_, out, i));
  }

  Quad row_scale() const {
    if (report_.budget.unit != Unit::kRow) return 0;
    Quad scale = 0;
    for (std::int64_t i = 0; i < c_.cols; ++i) {
      const Quad out = row_.out[static_cast<std::size_t>(i)];
      if (is_finite(out)) scale = std::max(scale, largest_addend(parameters_, out, i));
      // A centred element is the difference of two addends.
      if (c_.op == Op::kCenter) scale = std::max(scale, absolute(row_.x[static_cast<std::size_t>(i)]));
    }
    return scale;
  }

  // `before_weight` gives the reference's very number, or next to an inner tie the one from the neighbouring inner
  // value.
  bool comes_from_inner_tie(double found, std::int64_t i) const {
    const double x = is_add(c_.op) ? read_sum(i) : row_.x[static_cast<std::size_t>(i)];
    const auto results = around_inner_tie(x * row_.inv, parameters_, i, c_.x, kInnerTie);
    return results && (found == round_to(c_.out, (*results)[0]) || found == round_to(c_.out, (*results)[1]));
  }

  double read_sum(std::int64_t i) const {
    const std::size_t k = static_cast<std::size_t>(i);
    if (c_.norm_input == RN_NORM_ROUNDED_SUM) return row_.sum[k];
    return round_to(RN_F32, static_cast<Quad>(row_.x[k]) + row_.residual[k]);
  }

  void judge_out(std::int64_t r) {
    const bool by_equality = is_rms(c_.op) && c_.rounding == RN_ROUND_BEFORE_WEIGHT && is_16bit(c_.x);
    const bool signs_of_zero = is_rms(c_.op);
    const Matrix& stored = o_.result(c_.in_place);
    const Quad scale = row_scale();
    for (std::int64_t i = 0; i < c_.cols; ++i) {
      const double found = load(stored.type(), stored.row(r), i);
      const Quad exact = row_.out[static_cast<std::size_t>(i)];
      if (is_nan(exact) || !is_finite(exact)) {
        const bool same = is_nan(exact) ? is_nan(found) : found == exact;
        if (!same) fault("out", r, i, found, exact, kInfinite, 0);
        continue;
      }
      double error = ulp_distance(c_.out, found, exact);
      const double rounded = round_to(c_.out, exact);
      if (by_equality && found != rounded && comes_from_inner_tie(found, i)) {
        ++report_.near_ties;
        continue;
      }
      report_.exact += found == rounded;
      if (error != 0 && is_finite(error) && report_.budget.unit != Unit::kResult) {
        error = static_cast<double>(error * ulp_at(c_.out, exact) / unit(i, scale));
      }
      ++report_.elements;
      report_.sum_ulp += error;
      if (error > report_.max_ulp) {
        report_.max_ulp = error;
        report_.worst_row = r;
        report_.worst_col = i;
        report_.worst_found = found;
        report_.worst_expected = static_cast<double>(exact);
      }
      const bool wrong = by_equality ? found != rounded : !(error <= report_.budget.ulps);
      const bool no_sign = signs_of_zero && sign_lost(parameters_, found, exact, i);
      if (wrong || no_sign) fault("out", r, i, found, exact, error, by_equality ? 0 : report_.budget.ulps);
    }
  }

  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  const Case& c_;
  const Operands& o_;
  std::vector<double> weight_, bias_;
  Parameters parameters_;
  Expected row_;
  Report report_;
};

}  // namespace

void Report::merge(const Report& other) {
  if (error.empty()) error = other.error;
  budget = other.budget;
  elements += other.elements;
  sum_ulp += other.sum_ulp;
  exact += other.exact;
  near_ties += other.near_ties;
  if (other.max_ulp > max_ulp) {
    max_ulp = other.max_ulp;
    worst_row = other.worst_row;
    worst_col = other.worst_col;
    worst_found = other.worst_found;
    worst_expected = other.worst_expected;
  }
}

Report judge(const Case& c, const Operands& operands) { return Judge(c, operands).judge(); }

Report run(const Case& c) {
  Report refused;
  if (!c.target.empty() && rn_use_target(c.target.c_str()) != RN_OK) {
    refused.error = rn_last_error();
    return refused;
  }
  const Operands operands(c);
  if (call(c, operands) != RN_OK) {
    refused.error = rn_last_error();
    return refused;
  }
  return judge(c, operands);
}

}  // namespace rmsnorm::check
