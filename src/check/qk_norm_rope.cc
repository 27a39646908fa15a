// The norm of Q and K with rotary embedding, as data. x is Q: [.., heads, head_dim].
#include "reference/qk_norm_rope.h"

#include <algorithm>
#include <stdexcept>

#include "check/case.h"
#include "check/family.h"
#include "reference/budgets.h"
#include "reference/rms_norm.h"
#include "reference/ulp.h"

namespace rmsnorm::check {

using namespace reference;

namespace {

constexpr std::int64_t kPositions = 16;  // of the table, at least: what Values::kIndex reaches

constexpr std::string_view kLayoutNames[] = {"half_split", "interleaved"};

constexpr Setting kSettings[] = {
    {"epsilon", "added to the mean square", 1e-6},
    {"weight_offset", "added to each weight", 0},
    {"epsilon_placement", "inside or outside the root", 0, kPlacementNames},
    {"rounding", "when to round to the type of Q", 0, kRoundingNames},
    {"partial", "columns in the mean square; 0: all", 0, {}, true},
    {"rope_layout", "which columns are turned together", 0, kLayoutNames},
    {"rotary_dim", "columns that are turned, even; -1: all", -1, {}, true},
    {"k_heads", "heads of K", 1, {}, true},
};

class QkNormRope final : public Operation {
 public:
  std::string_view name() const override { return "qk_norm_rope"; }
  std::string_view summary() const override { return "rms_norm of each head of Q and K, rotary embedding"; }
  std::string_view x_name() const override { return "q"; }
  std::span<const Setting> settings() const override { return kSettings; }
  std::vector<std::pair<std::string_view, bool>> optional() const override {
    return {{"k", true}, {"q_weight", true}, {"k_weight", true}, {"cos_sin", true}, {"positions", false}};
  }

  std::vector<rn_type> types(std::string_view name, rn_type x) const override {
    if (name == "k") return {x};
    if (name == "cos_sin") return {RN_F32};
    if (name == "positions") return {RN_I64, RN_I32};
    if (name == "q_weight" || name == "k_weight") return types_beside(x);
    if (name != "q_out" && name != "k_out") return {};
    return types_beside(x);
  }

  Shape shape_for(std::int64_t rows, std::int64_t cols) const override {
    const std::int64_t heads = rows % 32 == 0 ? 32 : 2;
    return {(rows + heads - 1) / heads, heads, cols};
  }

  std::vector<Slot> slots(const Request& r) const override {
    if (r.shape.size() < 2) throw std::invalid_argument("x has one axis; it must have heads and columns");
    const auto type = [&](std::string_view name) { return r.type_of(name, types(name, r.x).front()); };
    const std::int64_t cols = r.shape.back();
    Shape k_shape = r.shape;
    k_shape[k_shape.size() - 2] = static_cast<std::int64_t>(number(r, "k_heads"));
    Shape tokens(r.shape.begin(), r.shape.end() - 2);
    if (tokens.empty()) tokens = {1};
    const bool k = r.has("k", true);
    const auto alias = [&](std::string_view out, std::string_view in) {
      return type(out) == r.x ? in : std::string_view();
    };
    std::vector<Slot> list = {{"q_out", Role::kOutput, type("q_out"), r.shape, Values::kNormal, alias("q_out", "q")}};
    if (k) list.push_back({"k_out", Role::kOutput, type("k_out"), k_shape, Values::kNormal, alias("k_out", "k")});
    list.push_back({"q", Role::kInput, r.x, r.shape, r.values});
    if (k) list.push_back({"k", Role::kInput, r.x, k_shape, r.values});
    for (const std::string_view name : {std::string_view("q_weight"), std::string_view("k_weight")}) {
      if (!r.has(name, true) || (!k && name == "k_weight")) continue;
      list.push_back({name, Role::kInput, type(name), {cols}, Values::kWeight});
    }
    if (rotary_dim(r) > 0) {
      const std::int64_t positions = std::max(kPositions, tokens.back());
      list.push_back({"cos_sin", Role::kInput, RN_F32, {positions, rotary_dim(r)}, Values::kNormal});
    }
    Slot positions = {"positions", Role::kInput, type("positions"), tokens, Values::kIndex};
    positions.row_padding = false;
    if (r.has("positions", false)) list.push_back(positions);
    return list;
  }

  rn_status call(const Request& r, const Tensors& t, const rn_execution& execution) const override {
    const rn_qk_norm_rope_options o = {norm_options(r), layout(r)};
    return rn_qk_norm_rope(t.view("q_out"), t.view("k_out"), t.view("q"), t.view("k"), t.view("q_weight"),
                           t.view("k_weight"), t.view("cos_sin"), t.view("positions"), &o, &execution);
  }

  Finding judge(const Request& r, const Tensors& t) const override {
    Finding finding;
    judge_heads(finding, r, t, "q_out", "q", "q_weight");
    if (t.has("k")) judge_heads(finding, r, t, "k_out", "k", "k_weight");
    return finding;
  }

  std::vector<Request> variants(rn_type x) const override {
    std::vector<Request> list(10);
    list[1].settings = {{"rope_layout", 1}, {"rounding", RN_ROUND_BEFORE_WEIGHT}};
    list[2].settings = {{"rotary_dim", 6}, {"rounding", RN_ROUND_BEFORE_WEIGHT}, {"k_heads", 3}};
    list[2].present = {{"positions", true}};
    list[2].in_place = true;
    list[3].settings = {{"rotary_dim", 34}, {"rope_layout", 1}, {"weight_offset", 1}, {"epsilon", 0}};
    list[3].present = {{"positions", true}, {"q_weight", false}};
    list[3].types = {{"positions", RN_I32}, {"k_weight", types("k_weight", x).back()}};
    list[4].present = {{"cos_sin", false}, {"k_weight", false}};
    list[4].settings = {{"rounding", RN_ROUND_BEFORE_WEIGHT}};
    list[5].present = {{"k", false}};
    list[5].types = {{"q_out", types("q_out", x).back()}};
    list[6].settings = {{"epsilon_placement", 1}, {"partial", 3}};
    list[6].in_place = true;
    list[7].settings = {{"rounding", RN_ROUND_EXACT}, {"k_heads", 4}};
    list[7].types = {{"k_out", types("k_out", x).back()}};
    list[8].present = {{"cos_sin", false}};
    list[8].in_place = true;
    list[9].settings = {{"rope_layout", 1}, {"k_heads", 3}};
    list[9].in_place = true;
    for (Request& r : list) r.x = x;
    return list;
  }

 private:
  double number(const Request& r, std::string_view name) const { return setting(*this, r, name); }
  rn_rope_layout layout(const Request& r) const { return static_cast<rn_rope_layout>(number(r, "rope_layout")); }
  std::int64_t rotary_dim(const Request& r) const {
    if (!r.has("cos_sin", true)) return 0;
    const std::int64_t cols = r.shape.back(), wanted = static_cast<std::int64_t>(number(r, "rotary_dim"));
    return (wanted < 0 ? cols : std::min(wanted, cols)) / 2 * 2;
  }
  rn_rms_norm_options norm_options(const Request& r) const {
    return {number(r, "epsilon"), number(r, "weight_offset"),
            static_cast<rn_epsilon_placement>(number(r, "epsilon_placement")),
            static_cast<rn_rounding>(number(r, "rounding")), static_cast<std::int64_t>(number(r, "partial"))};
  }

  void judge_heads(Finding& finding, const Request& r, const Tensors& t, std::string_view out, std::string_view in,
                   std::string_view weight_name) const {
    const std::vector<double> weight = t.row(weight_name, 0);
    const Parameters parameters{weight.empty() ? nullptr : weight.data(), nullptr, number(r, "weight_offset")};
    const std::int64_t rows = t[in].rows(), cols = t[in].cols();
    const Shape& shape = t[in].slot.shape;
    const std::int64_t heads = shape[shape.size() - 2], tokens = shape.size() > 2 ? shape[shape.size() - 3] : 1;
    const rn_type type = t[out].slot.type;
    const bool before_weight = static_cast<int>(number(r, "rounding")) == RN_ROUND_BEFORE_WEIGHT;
    const bool rounds = before_weight && (r.x == RN_F16 || r.x == RN_BF16);
    std::vector<Quad> y(static_cast<std::size_t>(cols)), addends(y.size());
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<double> x(y.size());
      t[in].before.read_row(row, x.data());
      rms_norm(y.data(), x.data(), cols, r.x, parameters, norm_options(r));
      if (rounds) std::transform(y.begin(), y.end(), y.begin(), [&](Quad v) { return round_to(r.x, v); });
      const std::int64_t token = row / heads;
      std::int64_t position = token % std::max<std::int64_t>(tokens, 1);
      if (t.has("positions")) {
        const Tensor& positions = t["positions"];
        position = static_cast<std::int64_t>(load(positions.slot.type, positions.before.row(0), token));
      }
      const std::vector<double> cos_sin = t.row("cos_sin", position);
      rope(y.data(), addends.data(), cols, cos_sin.data(), rotary_dim(r), layout(r));
      const std::vector<double> found = t.row(out, row);
      Quad largest = 0;  // of the row, for f64
      for (std::size_t i = 0; i < y.size(); ++i) largest = std::max({largest, absolute(y[i]), addends[i]});
      for (std::size_t i = 0; i < y.size(); ++i) {
        const bool turned = static_cast<std::int64_t>(i) < rotary_dim(r);
        Quad scale = y[i];
        double share = 0;  // of the largest addend, in ulps of the result
        Budget limit = {kF64, Unit::kRow};
        if (r.x == RN_F64 && type == RN_F64) {
          scale = largest;
        } else if (!turned) {
          const bool has_offset = number(r, "weight_offset") != 0;
          // y has been rounded to the type of x: there is one result.
          limit = rounds ? kTheReferences
                         : budget(Judged::kRmsNorm, r.x, type, false, has_offset, norm_options(r).rounding);
        } else if (type == RN_F32) {
          scale = std::max(absolute(y[i]), addends[i]);
          limit = {kAddend, Unit::kLargestAddend};
        } else {
          limit = {kRounded, Unit::kResultAndAddend, kAddend};
          share = static_cast<double>(kAddend * ulp_at(RN_F32, addends[i]) / ulp_at(type, y[i]));
        }
        double error = ulp_distance(type, found[i], y[i], scale);
        if (is_finite(share) && is_finite(error)) error *= limit.ulps / (limit.ulps + share);
        finding.add(error, limit, error == 0 || found[i] == round_to(type, y[i]), out, row,
                    static_cast<std::int64_t>(i), found[i], static_cast<double>(y[i]));
      }
    }
  }
};

}  // namespace

const Operation& qk_norm_rope_operation() {
  static const QkNormRope op;
  return op;
}

}  // namespace rmsnorm::check
