// The backward norms as data.
#include <algorithm>
#include <cmath>

#include "check/family.h"
#include "check/norm_judge.h"
#include "reference/layer_norm_backward.h"
#include "reference/rms_norm_backward.h"
#include "reference/ulp.h"

namespace rmsnorm::check {

using namespace reference;

namespace {

constexpr std::string_view kPlacements[] = {"inside", "outside"};

constexpr Setting kRmsSettings[] = {
    {"epsilon", "added to the mean square", 1e-6},
    {"weight_offset", "added to each weight", 0},
    {"epsilon_placement", "inside or outside the root", 0, kPlacements},
    {"partial", "columns in the mean square; 0: all", 0, {}, true},
    {"accumulate", "1: dweight and dbias are added to", 0, {}, true},
};
constexpr Setting kLayerSettings[] = {
    {"epsilon", "added to the variance", 1e-5},
    {"weight_offset", "added to each weight", 0},
    {"accumulate", "1: dweight and dbias are added to", 0, {}, true},
};

class Backward final : public Operation {
 public:
  Backward(std::string_view name, std::string_view summary, bool layer, bool add)
      : name_(name), summary_(summary), layer_(layer), add_(add) {}

  std::string_view name() const override { return name_; }
  std::string_view summary() const override { return summary_; }
  std::span<const Setting> settings() const override {
    if (layer_) return kLayerSettings;
    return kRmsSettings;
  }

  std::vector<std::pair<std::string_view, bool>> optional() const override {
    std::vector<std::pair<std::string_view, bool>> list = {
        {"dweight", true}, {"dbias", layer_}, {"weight", true}, {inv(), false}};
    if (add_) list.insert(list.end(), {{"dresidual", false}, {"d_residual_out", true}});
    return list;
  }

  std::vector<rn_type> types(std::string_view name, rn_type x) const override {
    if (name == inv()) return {x == RN_F64 ? RN_F64 : RN_F32};
    const bool parameter = name == "weight" || name == "dweight" || name == "dbias";
    const bool rows = name == "dx" || name == "dy" || (add_ && (name == "dresidual" || name == "d_residual_out"));
    return parameter || rows ? types_beside(x) : std::vector<rn_type>();
  }

  std::vector<Slot> slots(const Request& r) const override {
    if (r.shape.empty()) throw std::invalid_argument("x has no axis; it must have at least one");
    const rn_type parameter = types("weight", r.x).front();
    const rn_type statistic = r.x == RN_F64 ? RN_F64 : RN_F32;
    const Shape vector = {r.shape.back()};
    Shape rows(r.shape.begin(), r.shape.end() - 1);
    if (rows.empty()) rows = {1};
    const bool accumulate = setting(*this, r, "accumulate") != 0;
    std::vector<Slot> list = {{"dx", Role::kOutput, r.type_of("dx", r.x), r.shape, Values::kNormal, alias(r, "dx")}};
    const auto optional_slot = [&](std::string_view name, bool present, Slot slot) {
      if (r.has(name, present)) list.push_back(std::move(slot));
    };
    if (add_) optional_slot("dresidual", false, {"dresidual", Role::kOutput, r.type_of("dresidual", r.x), r.shape});
    for (const std::string_view name : {std::string_view("dweight"), std::string_view("dbias")}) {
      optional_slot(name, name == "dweight" || layer_,
                    {name, Role::kOutput, r.type_of(name, parameter), vector, Values::kNormal});
      if (accumulate && r.has(name, name == "dweight" || layer_)) list.back().holds_values = true;
    }
    list.push_back({"dy", Role::kInput, r.type_of("dy", r.x), r.shape, Values::kNormal});
    list.push_back({"x", Role::kInput, r.x, r.shape, r.values});
    if (add_) {
      optional_slot("d_residual_out", true,
                    {"d_residual_out", Role::kInput, r.type_of("d_residual_out", r.x), r.shape, Values::kNormal});
    }
    optional_slot("weight", true, {"weight", Role::kInput, r.type_of("weight", parameter), vector, Values::kWeight});
    // A saved statistic that is not the row's own shows whether it is used as given. Rows near the end of the range need
    // one of their size.
    const bool huge = r.values == Values::kHuge || r.values == Values::kMixed;
    Slot saved = {inv(), Role::kInput, statistic, rows, huge ? Values::kTiny : Values::kLognormal};
    saved.row_padding = false;
    optional_slot(inv(), false, saved);
    return list;
  }

  std::int64_t scratch_bytes(const Request& r) const override { return backward_scratch_bytes(r.shape); }

  rn_status call(const Request& r, const Tensors& t, const rn_execution& execution) const override {
    const rn_scratch scratch = t.scratch();
    const auto number = [&](std::string_view name) { return setting(*this, r, name); };
    const auto accumulate = static_cast<std::int32_t>(number("accumulate"));
    if (layer_) {
      const rn_layer_norm_backward_options o{{number("epsilon"), number("weight_offset")}, accumulate};
      return add_ ? rn_add_layer_norm_backward(t.view("dx"), t.view("dresidual"), t.view("dweight"), t.view("dbias"),
                                               t.view("dy"), t.view("d_residual_out"), t.view("x"), t.view("weight"),
                                               t.view("inv_std"), &scratch, &o, &execution)
                  : rn_layer_norm_backward(t.view("dx"), t.view("dweight"), t.view("dbias"), t.view("dy"), t.view("x"),
                                           t.view("weight"), t.view("inv_std"), &scratch, &o, &execution);
    }
    const rn_rms_norm_backward_options o{rms_options(r), accumulate};
    return add_ ? rn_add_rms_norm_backward(t.view("dx"), t.view("dresidual"), t.view("dweight"), t.view("dbias"),
                                           t.view("dy"), t.view("d_residual_out"), t.view("x"), t.view("weight"),
                                           t.view("inv_rms"), &scratch, &o, &execution)
                : rn_rms_norm_backward(t.view("dx"), t.view("dweight"), t.view("dbias"), t.view("dy"), t.view("x"),
                                       t.view("weight"), t.view("inv_rms"), &scratch, &o, &execution);
  }

  Finding judge(const Request& r, const Tensors& t) const override {
    Finding finding;
    const std::int64_t rows = t["x"].rows(), cols = t["x"].cols();
    const std::vector<double> weight = t.row("weight", 0);
    const Parameters parameters{weight.empty() ? nullptr : weight.data(), nullptr, setting(*this, r, "weight_offset")};
    const std::size_t d = static_cast<std::size_t>(cols);
    std::vector<Quad> dweight(d), dweight_terms(d), dbias(d), dbias_terms(d);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::vector<double> dy = t.row("dy", row), x = t.row("x", row), added = t.row("d_residual_out", row);
      std::vector<double> saved;
      if (t.has(inv())) saved = {load(t[inv()].slot.type, t[inv()].before.row(0), row)};
      const double* given = saved.empty() ? nullptr : saved.data();
      const GradientRow<Quad> exact =
          layer_ ? layer_norm_backward<Quad>(dy.data(), x.data(), cols, parameters, setting(*this, r, "epsilon"), given)
                 : rms_norm_backward<Quad>(dy.data(), x.data(), cols, parameters, rms_options(r), given);
      for (const std::string_view name : {std::string_view("dx"), std::string_view("dresidual")}) {
        if (!t.has(name)) continue;
        judge_gradient_row(finding, t[name].slot.type, name, row, t.row(name, row), exact, added);
      }
      for (std::size_t i = 0; i < d; ++i) {
        const Quad term = static_cast<Quad>(dy[i]) * exact.normalised[i];
        dweight[i] += term;
        dweight_terms[i] += absolute(term);
        dbias[i] += static_cast<Quad>(dy[i]);
        dbias_terms[i] += absolute(static_cast<Quad>(dy[i]));
      }
    }
    const auto judge_parameter = [&](std::string_view name, const std::vector<Quad>& exact,
                                     const std::vector<Quad>& terms) {
      if (!t.has(name)) return;
      std::vector<double> old;
      for (std::size_t i = 0; i < d && setting(*this, r, "accumulate") != 0; ++i) {
        old.push_back(load(t[name].slot.type, t[name].before.row(0), static_cast<std::int64_t>(i)));
      }
      judge_parameter_gradient(finding, t[name].slot.type, name, t.row(name, 0), old, exact, terms,
                               rows + *std::max_element(dbias_terms.begin(), dbias_terms.end()));
    };
    judge_parameter("dweight", dweight, dweight_terms);
    judge_parameter("dbias", dbias, dbias_terms);
    return finding;
  }

  std::vector<Request> variants(rn_type x) const override {
    std::vector<Request> list(8);
    list[1].present = {{"weight", false}, {"dbias", true}};
    list[2].settings = {{"weight_offset", 1}, {"epsilon", 1e-3}};
    list[3].present = {{std::string(inv()), true}, {"dweight", false}, {"dbias", false}};
    list[4].settings = {{"accumulate", 1}};
    list[4].present = {{"dbias", true}};
    list[5].in_place = true;
    list[6].types = {{"dy", types("dy", x).back()},
                     {"dx", types("dx", x).back()},
                     {"weight", types("weight", x).back()},
                     {"dweight", types("dweight", x).back()}};
    list[7].settings = {{"epsilon", 0}};
    if (!layer_) {
      list.resize(12);
      list[8].settings = {{"epsilon_placement", 1}, {"epsilon", 1e-2}};
      list[9].settings = {{"partial", 1}};
      list[10].settings = {{"epsilon_placement", 1}, {"epsilon", 0}, {"partial", 3}};
      list[11].settings = {{"epsilon_placement", 1}};
      list[11].present = {{"inv_rms", true}};
    }
    if (add_) {
      Request both;
      both.present = {{"dresidual", true}};
      both.types = {{"dresidual", types("dresidual", x).back()}};
      list.push_back(both);
      Request alone;
      alone.present = {{"d_residual_out", false}};
      list.push_back(alone);
    }
    for (Request& r : list) r.x = x;
    return list;
  }

 private:
  std::string_view inv() const { return layer_ ? "inv_std" : "inv_rms"; }
  std::string_view alias(const Request& r, std::string_view) const {
    return r.type_of("dx", r.x) == r.type_of("dy", r.x) ? "dy" : "";
  }

  rn_rms_norm_options rms_options(const Request& r) const {
    return {setting(*this, r, "epsilon"), setting(*this, r, "weight_offset"),
            static_cast<rn_epsilon_placement>(setting(*this, r, "epsilon_placement")), RN_ROUND_ONCE,
            static_cast<std::int64_t>(setting(*this, r, "partial"))};
  }

  std::string_view name_, summary_;
  bool layer_, add_;
};

}  // namespace

const Operation& rms_norm_backward_operation() {
  static const Backward op("rms_norm_backward", "gradients of rms_norm", false, false);
  return op;
}
const Operation& layer_norm_backward_operation() {
  static const Backward op("layer_norm_backward", "gradients of layer_norm", true, false);
  return op;
}
const Operation& add_rms_norm_backward_operation() {
  static const Backward op("add_rms_norm_backward", "gradients of add_rms_norm", false, true);
  return op;
}
const Operation& add_layer_norm_backward_operation() {
  static const Backward op("add_layer_norm_backward", "gradients of add_layer_norm", true, true);
  return op;
}

}  // namespace rmsnorm::check
