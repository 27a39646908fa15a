// Gated RMSNorm and its backward as data.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "check/family.h"
#include "check/norm_judge.h"
#include "reference/budgets.h"
#include "reference/gated_rms_norm.h"
#include "reference/ulp.h"

namespace rmsnorm::check {

using namespace reference;

namespace {

// Below a gate of -80 silu need only be this near.
constexpr double kFaintGate = -80, kFaintError = 0x1p-120;
constexpr double kVanishingGate = -700;  // from here on silu may be 0
constexpr double kFaintGroup = 0x1p480;  // inv, from which on squares are near f64's smallest

constexpr std::string_view kOrders[] = {"last", "first"};
constexpr std::string_view kRoundings[] = {"once", "before_weight"};

constexpr Setting kForwardSettings[] = {
    {"epsilon", "added to the mean square", 1e-6},
    {"gate_order", "the gate behind the norm or before it", 0, kOrders},
    {"rounding", "once, or also before the weight", 0, kRoundings},
    {"groups", "groups of a row, each normalised for itself", 1, {}, true},
};
constexpr Setting kBackwardSettings[] = {
    {"epsilon", "added to the mean square", 1e-6},
    {"gate_order", "the gate behind the norm or before it", 0, kOrders},
    {"groups", "groups of a row, each normalised for itself", 1, {}, true},
    {"accumulate", "1: dweight is added to", 0, {}, true},
};

bool is_16bit(rn_type type) { return type == RN_F16 || type == RN_BF16; }

// What both directions have in common.
class Gated : public Operation {
 protected:
  bool gate_first(const Request& r) const { return setting(*this, r, "gate_order") != 0; }
  std::int64_t groups(const Request& r) const { return static_cast<std::int64_t>(setting(*this, r, "groups")); }

  void require_groups(const Request& r) const {
    if (r.shape.empty()) throw std::invalid_argument("x has no axis; it must have at least one");
    const std::int64_t count = groups(r);
    if (count < 1 || r.shape.back() % count != 0) {
      throw std::invalid_argument("groups is " + std::to_string(count) + "; it must divide " +
                                  std::to_string(r.shape.back()) + ", the columns of x");
    }
  }

  // Gates within a few units, with heavy tails on both sides of where silu ends, or as special as x.
  static Values gate_values(const Request& r) {
    constexpr Values kOthers[] = {Values::kNormal, Values::kCauchy};
    return r.seed % 3 == 2 ? r.values : kOthers[r.seed % 3];
  }

  Slot gate(const Request& r) const { return {"gate", Role::kInput, r.type_of("gate", r.x), r.shape, gate_values(r)}; }
  Slot weight(const Request& r) const {
    return {"weight", Role::kInput, r.type_of("weight", r.x), {r.shape.back()}, Values::kWeight};
  }
  Slot inv(const Request& r, Role role) const {
    Shape shape = r.shape;
    shape.back() = groups(r);
    return {"inv_rms", role, r.x == RN_F64 ? RN_F64 : RN_F32, shape, Values::kLognormal};
  }

  rn_gated_rms_norm_options options(const Request& r, rn_rounding rounding) const {
    return {setting(*this, r, "epsilon"), gate_first(r) ? RN_GATE_FIRST : RN_GATE_LAST, rounding, groups(r)};
  }

  // The widened operands of one row, and its groups as the reference takes them.
  struct Row {
    std::vector<double> x, gate, weight;
    std::int64_t width;
    double epsilon;
    bool first;

    GatedInput group(std::int64_t g) const {
      return {x.data() + g * width,
              gate.data() + g * width,
              weight.empty() ? nullptr : weight.data() + g * width,
              width,
              epsilon,
              first};
    }
  };

  // Whether what silu may be off by decides what becomes of a group that is normalised behind its gates. So it is where
  // 0 meets an infinity; and, unless inv is given, where it is larger than the group, and the group
  // so small that its squares leave f64's range: this takes epsilon = 0.
  static bool undecided(const GatedInput& in, bool inv_given) {
    if (!in.gate_first) return false;
    Quad off = 0;
    bool faint = true, vanishes = false, infinite = false;
    for (std::int64_t i = 0; i < in.cols; ++i) {
      const Quad x = absolute(static_cast<Quad>(in.x[i]));
      vanishes |= in.gate[i] < kVanishingGate && is_finite(in.gate[i]);
      infinite |= !is_finite(x) && !is_nan(x);
      faint &= x == 0 || in.gate[i] < kFaintGate;
      if (is_finite(in.gate[i])) off = std::max(off, kFaintError * x);
    }
    if (vanishes && infinite) return true;
    if (!faint || inv_given || !(off > 0)) return false;
    const Quad inv = gated_norm<Quad>(in).inv;
    return inv * off > 1 && inv > kFaintGroup;
  }

  Row row(const Request& r, const Tensors& t, std::int64_t number) const {
    return {t.row("x", number),        t.row("gate", number),        t.row("weight", 0),
            t["x"].cols() / groups(r), setting(*this, r, "epsilon"), gate_first(r)};
  }
};

class Forward final : public Gated {
 public:
  std::string_view name() const override { return "gated_rms_norm"; }
  std::string_view summary() const override { return "RMSNorm with a gate behind it or before it"; }
  std::span<const Setting> settings() const override { return kForwardSettings; }
  std::vector<std::pair<std::string_view, bool>> optional() const override {
    return {{"inv_rms", true}, {"weight", true}};
  }
  std::vector<rn_type> types(std::string_view name, rn_type x) const override {
    if (name == "inv_rms") return {x == RN_F64 ? RN_F64 : RN_F32};
    if (name == "weight") return types_beside(x);
    return name == "out" || name == "gate" ? types_beside(x) : std::vector<rn_type>{};
  }

  std::vector<Slot> slots(const Request& r) const override {
    require_groups(r);
    const rn_type out = r.type_of("out", r.x);
    std::vector<Slot> list = {{"out", Role::kOutput, out, r.shape, Values::kNormal, out == r.x ? "x" : ""}};
    if (r.has("inv_rms", true)) list.push_back(inv(r, Role::kOutput));
    list.push_back({"x", Role::kInput, r.x, r.shape, r.values});
    list.push_back(gate(r));
    if (r.has("weight", true)) list.push_back(weight(r));
    return list;
  }

  rn_status call(const Request& r, const Tensors& t, const rn_execution& execution) const override {
    const rn_gated_rms_norm_options o = options(r, static_cast<rn_rounding>(setting(*this, r, "rounding")));
    return rn_gated_rms_norm(t.view("out"), t.view("inv_rms"), t.view("x"), t.view("gate"), t.view("weight"), &o,
                             &execution);
  }

  Finding judge(const Request& r, const Tensors& t) const override {
    Finding finding;
    for (std::int64_t number = 0; number < t["x"].rows(); ++number) {
      const Row inputs = row(r, t, number);
      const std::vector<double> out = t.row("out", number), saved = t.row("inv_rms", number);
      for (std::int64_t g = 0; g < groups(r); ++g) {
        if (undecided(inputs.group(g), false)) continue;
        const GatedNorm<Quad> norm = gated_norm<Quad>(inputs.group(g));
        judge_group(finding, r, inputs.group(g), norm, out.data() + g * inputs.width, number, g * inputs.width);
        if (!saved.empty()) judge_inv(finding, r, norm.inv, saved[static_cast<std::size_t>(g)], number, g);
      }
    }
    return finding;
  }

  std::vector<Request> variants(rn_type x) const override {
    std::vector<Request> list;
    for (const double order : {0.0, 1.0}) {
      std::vector<Request> some(6);
      some[1].settings = {{"rounding", 1}};
      some[2].settings = {{"rounding", 1}};
      some[2].types = {{"weight", types_beside(x).back()}, {"out", types_beside(x).back()}};
      some[3].present = {{"weight", false}, {"inv_rms", false}};
      some[3].settings = {{"epsilon", 1e-2}, {"rounding", 1}};
      some[4].types = {{"gate", types_beside(x).back()}, {"weight", types_beside(x).back()}};
      some[4].settings = {{"epsilon", 0}};
      some[5].in_place = true;
      some[5].types = {{"weight", types_beside(x).back()}};
      for (Request& r : some) {
        r.settings["gate_order"] = order;
        r.x = x;
        list.push_back(r);
      }
    }
    return list;
  }

 private:
  void judge_group(Finding& finding, const Request& r, const GatedInput& in, const GatedNorm<Quad>& norm,
                   const double* out, std::int64_t number, std::int64_t col) const {
    const rn_type type = r.type_of("out", r.x), weight_type = r.type_of("weight", r.x);
    const bool rounds = is_16bit(r.x) && setting(*this, r, "rounding") != 0;
    Quad largest = 0;
    for (std::int64_t i = 0; i < in.cols; ++i) {
      const Quad y = absolute(gated_result(in, norm, i));
      if (is_finite(y)) largest = std::max(largest, y);
    }
    for (std::int64_t i = 0; i < in.cols; ++i) {
      const std::size_t k = static_cast<std::size_t>(i);
      const Quad n = norm.normalised[k], activation = norm.activation[k].value;
      // What silu may be off by where it is faint, as a change of the result and, with the gate first, of n.
      const Quad faint = in.gate[i] < kFaintGate ? static_cast<Quad>(kFaintError) : Quad{0};
      const Quad faint_n = in.gate_first ? faint * absolute(static_cast<Quad>(in.x[i]) * norm.inv) : Quad{0};
      const Quad weight = in.weight ? static_cast<Quad>(in.weight[i]) : Quad{1};
      const Quad slack = absolute(weight) * (in.gate_first ? faint_n : faint * absolute(n));
      const auto error_from = [&](Quad exact) {
        const Quad scale = type == RN_F64 ? largest : exact;
        double error = ulp_distance(type, out[i], exact, scale);
        if (slack > 0 && is_finite(exact) && is_finite(static_cast<Quad>(out[i]))) {
          const Quad rest = absolute(static_cast<Quad>(out[i]) - exact) - slack;
          error = rest <= 0 ? 0 : static_cast<double>(rest / ulp_at(type, scale));
        }
        return error;
      };
      Budget limit = type == RN_F64   ? Budget{kF64, Unit::kRow}
                     : type == RN_F32 ? Budget{kGatedF32, Unit::kResult}
                                      : Budget{kRounded, Unit::kResult};
      Quad exact = gated_result(in, norm, i);
      double error = error_from(exact);
      if (rounds) {
        const auto rounded = [&](Quad value) {
          return gated_result_after_rounding(in, value, activation, i, r.x, weight_type);
        };
        // With the gate first only the roundings that are named follow: the very number is expected.
        if (in.gate_first) limit = kTheReferences;
        exact = rounded(n);
        error = error_from(exact);
        if (in.gate_first && error > 0 && out[i] != round_to(type, exact)) error = std::max(error, 1.0);
        if (tie_distance(r.x, n) <= kInnerTie || faint_n > 0) {
          const Quad nudge = 2 * kInnerTie * ulp_at(r.x, n) + faint_n;
          for (const Quad other : {rounded(n + nudge), rounded(n - nudge)}) error = std::min(error, error_from(other));
        }
      }
      finding.add(error, limit, error == 0 || out[i] == round_to(type, exact), "out", number, col + i, out[i],
                  static_cast<double>(exact));
    }
  }

  void judge_inv(Finding& finding, const Request& r, Quad exact, double found, std::int64_t number,
                 std::int64_t group) const {
    const rn_type type = r.x == RN_F64 ? RN_F64 : RN_F32;
    // Of u only its f32 is summed.
    const double limit = r.x == RN_F64                    ? kStatisticF64
                         : is_16bit(r.x) || gate_first(r) ? kStatisticOfF32Sums
                                                          : kStatistic;
    finding.add(ulp_distance(type, found, exact), {limit, Unit::kResult}, found == round_to(type, exact), "inv_rms",
                number, group, found, static_cast<double>(exact));
  }
};

class Backward final : public Gated {
 public:
  std::string_view name() const override { return "gated_rms_norm_backward"; }
  std::string_view summary() const override { return "gradients of gated_rms_norm"; }
  std::span<const Setting> settings() const override { return kBackwardSettings; }
  std::vector<std::pair<std::string_view, bool>> optional() const override {
    return {{"dx", true}, {"dgate", true}, {"dweight", true}, {"weight", true}, {"inv_rms", false}};
  }
  std::vector<rn_type> types(std::string_view name, rn_type x) const override {
    if (name == "inv_rms") return {x == RN_F64 ? RN_F64 : RN_F32};
    if (name == "weight" || name == "dweight") return types_beside(x);
    const bool rows = name == "dx" || name == "dgate" || name == "dy" || name == "gate";
    return rows ? types_beside(x) : std::vector<rn_type>{};
  }

  std::vector<Slot> slots(const Request& r) const override {
    require_groups(r);
    std::vector<Slot> list;
    const auto rows = [&](std::string_view name) { return Slot{name, Role::kOutput, r.type_of(name, r.x), r.shape}; };
    if (r.has("dx", true)) {
      list.push_back(rows("dx"));
      if (r.type_of("dx", r.x) == r.type_of("dy", r.x)) list.back().alias = "dy";
    }
    if (r.has("dgate", true)) list.push_back(rows("dgate"));
    if (r.has("dweight", true)) {
      Slot slot = {"dweight", Role::kOutput, r.type_of("dweight", r.x), {r.shape.back()}};
      slot.holds_values = setting(*this, r, "accumulate") != 0;
      list.push_back(slot);
    }
    list.push_back({"dy", Role::kInput, r.type_of("dy", r.x), r.shape, Values::kNormal});
    list.push_back({"x", Role::kInput, r.x, r.shape, r.values});
    list.push_back(gate(r));
    // Sums of such terms would pass through infinity.
    if (r.x == RN_F64 && list.back().values == Values::kHuge) list.back().values = Values::kNormal;
    if (r.has("weight", true)) list.push_back(weight(r));
    // Saved statistics that are not the groups' own show whether they are used as given.
    if (r.has("inv_rms", false)) list.push_back(inv(r, Role::kInput));
    return list;
  }

  std::int64_t scratch_bytes(const Request& r) const override { return backward_scratch_bytes(r.shape); }

  rn_status call(const Request& r, const Tensors& t, const rn_execution& execution) const override {
    const rn_scratch scratch = t.scratch();
    const rn_gated_rms_norm_backward_options o = {options(r, RN_ROUND_ONCE),
                                                  static_cast<std::int32_t>(setting(*this, r, "accumulate"))};
    return rn_gated_rms_norm_backward(t.view("dx"), t.view("dgate"), t.view("dweight"), t.view("dy"), t.view("x"),
                                      t.view("gate"), t.view("weight"), t.view("inv_rms"), &scratch, &o, &execution);
  }

  Finding judge(const Request& r, const Tensors& t) const override {
    Finding finding;
    const std::size_t cols = static_cast<std::size_t>(t["x"].cols());
    std::vector<Quad> dweight(cols), terms(cols);
    std::vector<bool> left_out(cols);
    for (std::int64_t number = 0; number < t["x"].rows(); ++number) {
      const Row inputs = row(r, t, number);
      const std::vector<double> dy = t.row("dy", number), saved = t.row("inv_rms", number);
      const std::vector<double> dx = t.row("dx", number), dgate = t.row("dgate", number);
      for (std::int64_t g = 0; g < groups(r); ++g) {
        const std::int64_t at = g * inputs.width;
        if (undecided(inputs.group(g), !saved.empty())) {
          std::fill_n(left_out.begin() + at, inputs.width, true);
          continue;
        }
        const GatedGradient<Quad> exact =
            gated_rms_norm_backward<Quad>(inputs.group(g), dy.data() + at, saved.empty() ? nullptr : saved.data() + g);
        for (std::int64_t i = 0; i < inputs.width; ++i) {
          const std::size_t k = static_cast<std::size_t>(i), col = static_cast<std::size_t>(at + i);
          if (!dx.empty()) {
            judge_rows(finding, r, "dx", number, at + i, dx[col], exact.dx[k], exact.largest_dx);
          }
          if (!dgate.empty()) {
            judge_rows(finding, r, "dgate", number, at + i, dgate[col], exact.dgate[k], exact.largest_dgate);
          }
          dweight[col] += exact.dweight[k];
          terms[col] += absolute(exact.dweight[k]);
        }
      }
    }
    if (!t.has("dweight")) return finding;
    const Tensor& gradient = t["dweight"];
    std::vector<double> old;
    if (gradient.slot.holds_values) {
      old.resize(cols);
      gradient.before.read_row(0, old.data());
    }
    judge_parameter_gradient(finding, gradient.slot.type, "dweight", t.row("dweight", 0), old, dweight, terms,
                             t["x"].rows(), left_out);
    return finding;
  }

  std::vector<Request> variants(rn_type x) const override {
    std::vector<Request> list;
    for (const double order : {0.0, 1.0}) {
      std::vector<Request> some(6);
      some[1].present = {{"weight", false}, {"dgate", false}};
      some[1].settings = {{"epsilon", 1e-2}};
      some[2].present = {{"inv_rms", true}, {"dweight", false}};
      some[3].settings = {{"accumulate", 1}, {"epsilon", 0}};
      some[3].present = {{"dx", false}};
      some[4].in_place = true;
      some[5].types = {{"dy", types_beside(x).back()},     {"dx", types_beside(x).back()},
                       {"gate", types_beside(x).back()},   {"dgate", types_beside(x).back()},
                       {"weight", types_beside(x).back()}, {"dweight", types_beside(x).back()}};
      for (Request& r : some) {
        r.settings["gate_order"] = order;
        r.x = x;
        list.push_back(r);
      }
    }
    return list;
  }

 private:
  static void judge_rows(Finding& finding, const Request& r, std::string_view name, std::int64_t row, std::int64_t col,
                         double found, Quad exact, Quad largest) {
    const rn_type type = r.in_place && name == "dx" ? r.type_of("dy", r.x) : r.type_of(name, r.x);
    judge_gradient(finding, type, name, row, col, found, exact, largest);
  }
};

}  // namespace

const Operation& gated_rms_norm_operation() {
  static const Forward op;
  return op;
}
const Operation& gated_rms_norm_backward_operation() {
  static const Backward op;
  return op;
}

}  // namespace rmsnorm::check
