// RMSNorm with a quantised output, as data.
#include "reference/quantize.h"

#include <algorithm>
#include <stdexcept>

#include "check/case.h"
#include "check/family.h"
#include "reference/budgets.h"
#include "reference/inner_tie.h"
#include "reference/residual.h"
#include "reference/rms_norm.h"
#include "reference/ulp.h"

namespace rmsnorm::check {

using namespace reference;

namespace {

constexpr std::string_view kScalings[] = {"static", "per_row", "per_group"};

constexpr Setting kSettings[] = {
    {"epsilon", "added to the mean square", 1e-6},
    {"weight_offset", "added to each weight", 0},
    {"epsilon_placement", "inside or outside the root", 0, kPlacementNames},
    {"rounding", "when to round to the type of x", 0, kRoundingNames},
    {"partial", "columns in the mean square; 0: all", 0, {}, true},
    {"scaling", "what shares a scale", RN_SCALE_PER_ROW, kScalings},
    {"static_scale", "with --scaling static", 1},
    {"power_of_two", "1: scales are rounded up to one", 0, {}, true},
    {"norm_input", "the sum that the norm reads", 0, kNormInputNames},
};

class Quantize final : public Operation {
 public:
  Quantize(std::string_view name, std::string_view summary, bool add) : name_(name), summary_(summary), add_(add) {}

  std::string_view name() const override { return name_; }
  std::string_view summary() const override { return summary_; }
  std::span<const Setting> settings() const override {
    return add_ ? std::span<const Setting>(kSettings) : std::span<const Setting>(kSettings).first(8);
  }
  std::vector<std::pair<std::string_view, bool>> optional() const override {
    return {{"weight", true}, {"bias", false}};
  }

  std::vector<rn_type> types(std::string_view name, rn_type x) const override {
    if (name == "out") return {RN_I8, RN_F8E4M3, RN_F8E5M2};
    if (name == "scale") return {RN_F32};
    if (name == "weight" || name == "bias") return types_beside(x);
    if (add_ && (name == "residual" || name == "residual_out")) {
      return x == RN_F32 || x == RN_F64 ? std::vector<rn_type>{x} : std::vector<rn_type>{x, RN_F32};
    }
    return {};
  }

  std::vector<Slot> slots(const Request& r) const override {
    if (r.shape.empty()) throw std::invalid_argument("x has no axis; it must have at least one");
    const auto type = [&](std::string_view name) { return r.type_of(name, types(name, r.x).front()); };
    Shape scales = r.shape;
    scales.back() = groups(r);
    std::vector<Slot> list = {{"out", Role::kOutput, type("out"), r.shape}};
    if (add_) {
      const bool same = type("residual") == type("residual_out");
      list.push_back({"residual_out", Role::kOutput, type("residual_out"), r.shape, Values::kNormal,
                      same ? "residual" : std::string_view()});
    }
    if (scaling(r) != RN_SCALE_STATIC) list.push_back({"scale", Role::kOutput, RN_F32, scales});
    list.push_back({"x", Role::kInput, r.x, r.shape, r.values});
    if (add_) list.push_back({"residual", Role::kInput, type("residual"), r.shape, r.values});
    Slot weight = {"weight", Role::kInput, type("weight"), {r.shape.back()}, Values::kWeight};
    Slot bias = {"bias", Role::kInput, type("bias"), {r.shape.back()}, Values::kNormal};
    if (r.has("weight", true)) list.push_back(weight);
    if (r.has("bias", false)) list.push_back(bias);
    return list;
  }

  rn_status call(const Request& r, const Tensors& t, const rn_execution& execution) const override {
    const rn_quantization q = {static_cast<rn_scaling>(scaling(r)), static_cast<float>(number(r, "static_scale")),
                               static_cast<std::int32_t>(number(r, "power_of_two"))};
    if (add_) {
      const rn_add_rms_norm_quantize_options o = {{norm_options(r), norm_input(r)}, q};
      return rn_add_rms_norm_quantize(t.view("out"), t.view("residual_out"), t.view("scale"), t.view("x"),
                                      t.view("residual"), t.view("weight"), t.view("bias"), &o, &execution);
    }
    const rn_rms_norm_quantize_options o = {norm_options(r), q};
    return rn_rms_norm_quantize(t.view("out"), t.view("scale"), t.view("x"), t.view("weight"), t.view("bias"), &o,
                                &execution);
  }

  Finding judge(const Request& r, const Tensors& t) const override {
    Finding finding;
    const std::int64_t rows = t["x"].rows(), cols = t["x"].cols();
    const std::vector<double> weight = t.row("weight", 0), bias = t.row("bias", 0);
    const Parameters parameters{weight.empty() ? nullptr : weight.data(), bias.empty() ? nullptr : bias.data(),
                                number(r, "weight_offset")};
    const std::int64_t group = scaling(r) == RN_SCALE_PER_GROUP ? RN_SCALE_GROUP : cols;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::vector<double> x = norm_reads(finding, r, t, row);
      std::vector<Quad> exact(x.size());
      const Quad inv = rms_norm(exact.data(), x.data(), cols, r.x, parameters, norm_options(r));
      std::vector<double> y(x.size());
      const rn_type y_type = rounds(r) ? r.x : RN_F32;
      for (std::size_t i = 0; i < y.size(); ++i) y[i] = round_to(y_type, exact[i]);
      std::vector<double> other = y;
      if (rounds(r)) {
        for (std::size_t i = 0; i < y.size(); ++i) other[i] = beyond_tie(y[i], x[i] * inv, parameters, i, r.x);
        exact.assign(y.begin(), y.end());
      }
      const std::vector<double> out = t.row("out", row), found_scales = t.row("scale", row);
      for (std::int64_t begin = 0; begin < cols; begin += group) {
        const std::int64_t count = std::min(group, cols - begin);
        double scale = static_cast<double>(static_cast<float>(number(r, "static_scale")));
        if (!found_scales.empty()) {
          const std::int64_t index = begin / group;
          scale = judge_scale(finding, r, y.data() + begin, other.data() + begin, count, row, index,
                              found_scales[static_cast<std::size_t>(index)], out_type(r));
        }
        for (std::int64_t i = begin; i < begin + count; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const double first = code_error(out_type(r), out[at], y[at], exact[at], scale);
          const bool either = first != 0 && other[at] != y[at];
          const double error =
              either ? std::min(first, code_error(out_type(r), out[at], other[at], other[at], scale)) : first;
          finding.add(error, {kBoundary, Unit::kFromBoundary}, first == 0, "out", row, i, out[at],
                      quantized(y[at], scale, out_type(r)));
        }
      }
    }
    return finding;
  }

  std::vector<Request> variants(rn_type x) const override {
    std::vector<Request> list(12);
    list[1].types = {{"out", RN_F8E4M3}};
    list[1].settings = {{"scaling", RN_SCALE_PER_GROUP}};
    list[2].types = {{"out", RN_F8E5M2}, {"weight", types("weight", x).back()}};
    list[2].settings = {{"scaling", RN_SCALE_STATIC}, {"static_scale", 0.01}};
    list[3].settings = {{"rounding", RN_ROUND_BEFORE_WEIGHT}, {"scaling", RN_SCALE_PER_GROUP}};
    list[4].settings = {{"rounding", RN_ROUND_BEFORE_WEIGHT}, {"weight_offset", 1}, {"power_of_two", 1}};
    list[4].types = {{"out", RN_F8E4M3}};
    list[5].settings = {{"weight_offset", 1}, {"epsilon", 0}};
    list[5].present = {{"bias", true}};
    list[6].settings = {
        {"rounding", RN_ROUND_EXACT}, {"weight_offset", 1}, {"scaling", RN_SCALE_STATIC}, {"static_scale", 0.03}};
    list[7].settings = {{"rounding", RN_ROUND_BEFORE_WEIGHT}, {"epsilon_placement", 1}};
    list[7].present = {{"bias", true}};
    list[7].types = {{"out", RN_F8E5M2}, {"weight", types("weight", x).back()}};
    list[8].present = {{"weight", false}};
    list[8].settings = {{"scaling", RN_SCALE_PER_GROUP}, {"power_of_two", 1}};
    list[9].settings = {{"partial", 3}, {"weight_offset", 1}};
    list[9].types = {{"out", RN_F8E4M3}};
    list[10].settings = {{"weight_offset", 1}, {"scaling", RN_SCALE_STATIC}, {"static_scale", 0.02}};
    list[11].settings = {{"power_of_two", 1}};
    if (add_) {
      for (std::size_t i = 0; i < list.size(); ++i) {
        list[i].in_place = i % 2 != 0;
        if (i % 3 == 1) list[i].settings["norm_input"] = RN_NORM_UNROUNDED_SUM;
        if (i % 4 == 2) list[i].types["residual"] = types("residual", x).back();
        if (i % 5 == 3) list[i].types["residual_out"] = types("residual_out", x).back();
      }
    }
    for (Request& r : list) r.x = x;
    return list;
  }

 private:
  double number(const Request& r, std::string_view name) const { return setting(*this, r, name); }
  int scaling(const Request& r) const { return static_cast<int>(number(r, "scaling")); }
  rn_norm_input norm_input(const Request& r) const { return static_cast<rn_norm_input>(number(r, "norm_input")); }
  rn_type out_type(const Request& r) const { return r.type_of("out", RN_I8); }
  std::int64_t groups(const Request& r) const {
    return scaling(r) == RN_SCALE_PER_GROUP ? (r.shape.back() + RN_SCALE_GROUP - 1) / RN_SCALE_GROUP : 1;
  }
  // y has the type of x, a 16-bit one.
  bool rounds(const Request& r) const {
    return static_cast<int>(number(r, "rounding")) == RN_ROUND_BEFORE_WEIGHT && (r.x == RN_F16 || r.x == RN_BF16);
  }

  rn_rms_norm_options norm_options(const Request& r) const {
    return {number(r, "epsilon"), number(r, "weight_offset"),
            static_cast<rn_epsilon_placement>(number(r, "epsilon_placement")),
            static_cast<rn_rounding>(number(r, "rounding")), static_cast<std::int64_t>(number(r, "partial"))};
  }

  // The row that the norm reads; residual_out is judged on the way, and must be exact.
  std::vector<double> norm_reads(Finding& finding, const Request& r, const Tensors& t, std::int64_t row) const {
    const std::vector<double> x = t.row("x", row);
    if (!add_) return x;
    std::vector<double> residual(x.size()), sum(x.size()), reads(x.size());
    t["residual"].before.read_row(row, residual.data());
    const rn_type type = r.type_of("residual_out", r.x);
    add_residual(sum.data(), reads.data(), x.data(), residual.data(), static_cast<std::int64_t>(x.size()), r.x, type,
                 norm_input(r));
    const std::vector<double> found = t.row("residual_out", row);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const double error = ulp_distance(type, found[i], sum[i]);
      finding.add(error, kTheReferences, error == 0, "residual_out", row, static_cast<std::int64_t>(i), found[i],
                  sum[i]);
    }
    return reads;
  }

  // `before_weight`: what y may be, too, next to an inner tie; else y. n: the inner value.
  static double beyond_tie(double y, Quad n, const Parameters& parameters, std::size_t i, rn_type type) {
    const auto results = around_inner_tie(n, parameters, static_cast<std::int64_t>(i), type, kInnerTieOfF64);
    if (!results) return y;
    const double above = round_to(type, (*results)[0]), below = round_to(type, (*results)[1]);
    return above == y ? below : above;
  }

  // The scale for y, or the one found if elements next to an inner tie can bring it about.
  static double scale_for(const double* y, const double* other, std::int64_t count, double found, rn_type type,
                          bool to_power) {
    const double expected = scale_for_largest(largest_magnitude(y, count), type, to_power);
    if (found == expected) return expected;
    std::vector<double> smaller;
    for (std::int64_t i = 0; i < count; ++i) smaller.push_back(std::min(std::fabs(y[i]), std::fabs(other[i])));
    const double least = largest_magnitude(smaller.data(), count);
    for (std::int64_t i = 0; i < count; ++i) {
      const double larger = std::max(std::fabs(y[i]), std::fabs(other[i]));
      if (larger >= least && scale_for_largest(larger, type, to_power) == found) return found;
    }
    return scale_for_largest(least, type, to_power) == found ? found : expected;
  }

  // Returns the scale that results are judged with: the reference's; of two powers of two that may be, the one found.
  double judge_scale(Finding& finding, const Request& r, const double* y, const double* other, std::int64_t count,
                     std::int64_t row, std::int64_t index, double found, rn_type type) const {
    const bool to_power = number(r, "power_of_two") != 0;
    const double expected = scale_for(y, other, count, found, type, to_power);
    // A y that is rounded to 16 bits is exact, and the scale is the reference's.
    const Budget limit = rounds(r) ? kTheReferences : Budget{kScale, Unit::kResult};
    double error = ulp_distance(RN_F32, found, expected);
    double result = expected;
    if (to_power && found != expected) {
      // The reference's neighbour, where max|y| / qmax is next to the smaller of both.
      const double largest = largest_magnitude(y, count), smaller = std::min(found, expected);
      const bool neighbours = smaller * 2 == std::max(found, expected);
      error = neighbours ? ulp_distance(RN_F32, smaller, static_cast<Quad>(largest) / format_of(type).largest)
                         : std::numeric_limits<double>::infinity();
      if (rounds(r)) error = std::max(error, 1.0);
      result = found;
    }
    finding.add(error, limit, found == expected, "scale", row, index, found, expected);
    return result;
  }

  // How far y / scale, of y's exact value, is from the boundary between the code found and its own.
  static double code_error(rn_type type, double found, double y, Quad exact, double scale) {
    const double expected = quantized(y, scale, type);
    if (found == expected || (is_nan(found) && is_nan(expected))) return 0;
    if (is_nan(found) || is_nan(expected) || !are_neighbours(type, found, expected)) {
      return std::numeric_limits<double>::infinity();
    }
    const Quad ratio = exact / static_cast<Quad>(scale);
    const Quad boundary = (static_cast<Quad>(found) + static_cast<Quad>(expected)) / 2;
    return static_cast<double>(absolute(ratio - boundary) / ulp_at(RN_F32, ratio));
  }

  // Nothing of the type lies between them: their middle rounds to one of both.
  static bool are_neighbours(rn_type type, double a, double b) {
    const Quad middle = (static_cast<Quad>(a) + static_cast<Quad>(b)) / 2;
    const double nearest = round_to(type, middle);
    return (nearest == a || nearest == b) && static_cast<Quad>(nearest) != middle;
  }

  std::string_view name_, summary_;
  bool add_;
};

}  // namespace

const Operation& rms_norm_quantize_operation() {
  static const Quantize op("rms_norm_quantize", "rms_norm, then division by a scale and rounding to 8 bits", false);
  return op;
}
const Operation& add_rms_norm_quantize_operation() {
  static const Quantize op("add_rms_norm_quantize", "residual add, rms_norm, rounding to 8 bits", true);
  return op;
}

}  // namespace rmsnorm::check
