// The channel norms as data. Elements that share a mean are gathered into rows, which the references of whole rows
// judge.
#include <algorithm>
#include <cmath>

#include "check/family.h"
#include "check/norm_judge.h"
#include "reference/rms_norm.h"

namespace rmsnorm::check {

using namespace reference;

namespace {

constexpr std::string_view kPlacements[] = {"inside", "outside"};
constexpr std::string_view kRoundings[] = {"once", "before_weight", "exact"};

constexpr Setting kGroups = {"groups", "groups of channels; 0: each channel its own", 1, {}, true};
constexpr Setting kEpsilon = {"epsilon", "added to the mean square", 1e-6};
constexpr Setting kOffset = {"weight_offset", "added to each weight", 0};
constexpr Setting kPlacement = {"epsilon_placement", "inside or outside the root", 0, kPlacements};
constexpr Setting kRounding = {"rounding", "once, before_weight or exact", 0, kRoundings};
constexpr Setting kAccumulate = {"accumulate", "1: dweight and dbias are added to", 0, {}, true};

// The settings of a form without groups are those behind the first.
constexpr Setting kForward[] = {kGroups, kEpsilon, kOffset, kPlacement, kRounding};
constexpr Setting kBackward[] = {kGroups, kEpsilon, kOffset, kPlacement, kAccumulate};

// x as [images, channels, lines, line].
struct Sizes {
  std::int64_t images, channels, lines, line;
  explicit Sizes(const Shape& shape) : images(shape[0]), channels(shape[1]), lines(1), line(shape.back()) {
    for (std::size_t k = 2; k + 1 < shape.size(); ++k) lines *= shape[k];
  }
  std::int64_t pixels() const { return lines * line; }
};

// All elements of an operand, [images][channels][pixels].
std::vector<double> all_of(const Tensors& t, std::string_view name) {
  std::vector<double> values;
  for (std::int64_t r = 0; r < t[name].rows(); ++r) {
    const std::vector<double> row = t.row(name, r);
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

// The elements that share a mean: their places, and the channels they belong to.
struct Row {
  std::vector<std::size_t> at, channel;
  std::vector<double> of(const std::vector<double>& all) const {
    std::vector<double> values;
    for (const std::size_t i : at) values.push_back(all[i]);
    return values;
  }
  std::vector<double> parameter(const std::vector<double>& each) const {
    std::vector<double> values;
    for (std::size_t i = 0; i < at.size() && !each.empty(); ++i) values.push_back(each[channel[i]]);
    return values;
  }
};

class Channels final : public Operation {
 public:
  Channels(std::string_view name, std::string_view summary, bool grouped, bool backward)
      : name_(name), summary_(summary), grouped_(grouped), backward_(backward) {}

  std::string_view name() const override { return name_; }
  std::string_view summary() const override { return summary_; }
  std::span<const Setting> settings() const override {
    const std::span<const Setting> all = backward_ ? std::span(kBackward) : std::span(kForward);
    return grouped_ ? all : all.subspan(1);
  }

  std::vector<std::pair<std::string_view, bool>> optional() const override {
    if (backward_) return {{"dweight", true}, {"dbias", false}, {"weight", true}};
    return {{"weight", true}, {"bias", false}};
  }

  std::vector<rn_type> types(std::string_view name, rn_type x) const override {
    const bool parameter =
        name == (backward_ ? "dweight" : "bias") || name == "weight" || (backward_ && name == "dbias");
    const bool rows = backward_ ? name == "dx" || name == "dy" : name == "out";
    if (!parameter && !rows) return {};
    return types_beside(x);
  }

  std::vector<Slot> slots(const Request& r) const override {
    if (r.shape.size() < 3) throw std::invalid_argument("x must have at least three axes: batch, channels, pixels");
    std::vector<Slot> list;
    const auto rows = [&](std::string_view name, Role role, Values values, std::string_view alias = "") {
      const rn_type type = r.type_of(name, r.x);
      list.push_back({name, role, type, r.shape, values, !alias.empty() && type == r.type_of(alias, r.x) ? alias : ""});
    };
    const auto parameter = [&](std::string_view name, Role role, Values values) {
      for (const auto& [optional_name, present] : optional()) {
        if (optional_name != name || !r.has(name, present)) continue;
        list.push_back({name, role, r.type_of(name, types(name, r.x).front()), {r.shape[1]}, values});
        list.back().holds_values = role == Role::kOutput && setting(*this, r, "accumulate") != 0;
      }
    };
    rows(backward_ ? "dx" : "out", Role::kOutput, Values::kNormal, backward_ ? "dy" : "x");
    parameter("dweight", Role::kOutput, Values::kNormal);
    parameter("dbias", Role::kOutput, Values::kNormal);
    if (backward_) rows("dy", Role::kInput, Values::kNormal);
    rows("x", Role::kInput, r.values);
    parameter("weight", Role::kInput, Values::kWeight);
    parameter("bias", Role::kInput, Values::kNormal);
    return list;
  }

  std::int64_t scratch_bytes(const Request& r) const override {
    if (!backward_) return 0;
    const Sizes s(r.shape);
    return grouped_ ? rn_group_rms_norm_scratch_bytes(s.images, s.channels)
                    : rn_rms_norm_channels_scratch_bytes(s.images, s.channels, s.pixels());
  }

  rn_status call(const Request& r, const Tensors& t, const rn_execution& execution) const override {
    const auto view = [&](std::string_view name) { return t.view(name); };
    const std::int64_t groups = groups_of(r);
    const rn_rms_norm_options norm = options(r);
    if (!backward_) {
      return grouped_
                 ? rn_group_rms_norm(view("out"), view("x"), groups, view("weight"), view("bias"), &norm, &execution)
                 : rn_rms_norm_channels(view("out"), view("x"), view("weight"), view("bias"), &norm, &execution);
    }
    const rn_scratch scratch = t.scratch();
    const rn_rms_norm_backward_options o{norm, static_cast<std::int32_t>(setting(*this, r, "accumulate"))};
    return grouped_ ? rn_group_rms_norm_backward(view("dx"), view("dweight"), view("dbias"), view("dy"), view("x"),
                                                 groups, view("weight"), &scratch, &o, &execution)
                    : rn_rms_norm_channels_backward(view("dx"), view("dweight"), view("dbias"), view("dy"), view("x"),
                                                    view("weight"), &scratch, &o, &execution);
  }

  Finding judge(const Request& r, const Tensors& t) const override {
    Finding finding;
    const std::vector<double> x = all_of(t, "x"), weight = t.row("weight", 0), bias = t.row("bias", 0);
    const std::vector<double> dy = backward_ ? all_of(t, "dy") : std::vector<double>();
    const std::vector<double> found = all_of(t, backward_ ? "dx" : "out");
    const auto channels = static_cast<std::size_t>(r.shape[1]);
    std::vector<Quad> dweight(channels), dweight_terms(channels), dbias(channels), dbias_terms(channels);
    std::int64_t number = 0;
    for (const Row& row : rows_of(r)) {
      const std::vector<double> row_x = row.of(x), row_weight = row.parameter(weight), row_bias = row.parameter(bias);
      const Parameters parameters{row_weight.empty() ? nullptr : row_weight.data(),
                                  row_bias.empty() ? nullptr : row_bias.data(), setting(*this, r, "weight_offset")};
      if (!backward_) {
        judge_out(finding, r, t, number++, row_x, row.of(found), parameters);
        continue;
      }
      const std::vector<double> row_dy = row.of(dy);
      const GradientRow<Quad> exact = rms_norm_backward<Quad>(
          row_dy.data(), row_x.data(), static_cast<std::int64_t>(row_x.size()), parameters, options(r));
      judge_gradient_row(finding, t["dx"].slot.type, "dx", number++, row.of(found), exact);
      for (std::size_t i = 0; i < row_x.size(); ++i) {
        const std::size_t c = row.channel[i];
        const Quad term = static_cast<Quad>(row_dy[i]) * exact.normalised[i];
        dweight[c] += term;
        dweight_terms[c] += absolute(term);
        dbias[c] += static_cast<Quad>(row_dy[i]);
        dbias_terms[c] += absolute(static_cast<Quad>(row_dy[i]));
      }
    }
    if (backward_) judge_parameter(finding, r, t, "dweight", dweight, dweight_terms);
    if (backward_) judge_parameter(finding, r, t, "dbias", dbias, dbias_terms);
    return finding;
  }

  // Over channels: `cols` of them, and `rows` pixels in one or two images. Groups: `rows` images of about `cols`
  // elements in four channels. Where they are enough, the pixels lie in three lines.
  Shape shape_for(std::int64_t rows, std::int64_t cols) const override {
    const bool large = rows >= 1024;  // then images of 64 channels
    const std::int64_t images = grouped_ ? (large ? rows / 64 : rows) : rows == 0 ? 0 : rows % 2 == 0 ? 2 : 1;
    const std::int64_t channels = !grouped_ ? cols : large ? 64 : 4;
    const std::int64_t pixels =
        grouped_ ? std::max<std::int64_t>(large ? cols : cols / 4, 1) : rows / std::max<std::int64_t>(images, 1);
    const std::int64_t lines = pixels >= 9 ? 3 : 1;
    return {images, channels, lines, std::max<std::int64_t>(pixels / lines, 1)};
  }

  std::vector<Request> variants(rn_type x) const override {
    std::vector<Request> list(1);
    const auto another = [&](std::map<std::string, double, std::less<>> settings = {}) -> Request& {
      list.emplace_back().settings = std::move(settings);
      return list.back();
    };
    const double groups[] = {1, 2, 0};
    another({{"weight_offset", 1}, {"epsilon", 1e-3}}).in_place = true;
    another({{"epsilon", 0}}).present = {{backward_ ? "dbias" : "bias", true}};
    another({{"epsilon_placement", 1}, {"epsilon", 1e-2}}).present = {{"weight", false}};
    another({{"epsilon_placement", 1}, {"epsilon", 0}});
    if (backward_) {
      another({{"accumulate", 1}}).present = {{"dbias", true}};
      another().present = {{"dweight", false}};
    } else {
      another({{"rounding", 1}}).present = {{"bias", true}};
      another({{"rounding", 1}, {"weight_offset", 1}});
      another({{"rounding", 2}});
    }
    Request& other = another();
    for (const std::string_view name : {"out", "dx", "dy", "weight", "dweight", "bias"}) {
      if (!types(name, x).empty()) other.types[std::string(name)] = types(name, x).back();
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i].x = x;
      if (grouped_) list[i].settings["groups"] = groups[i % std::size(groups)];
    }
    return list;
  }

 private:
  std::int64_t groups_of(const Request& r) const {
    if (!grouped_) return 0;
    const auto groups = static_cast<std::int64_t>(setting(*this, r, "groups"));
    return groups == 0 ? r.shape[1] : groups;
  }

  rn_rms_norm_options options(const Request& r) const {
    return {setting(*this, r, "epsilon"), setting(*this, r, "weight_offset"),
            static_cast<rn_epsilon_placement>(setting(*this, r, "epsilon_placement")),
            backward_ ? RN_ROUND_ONCE : static_cast<rn_rounding>(setting(*this, r, "rounding")), 0};
  }

  std::vector<Row> rows_of(const Request& r) const {
    const Sizes s(r.shape);
    const std::int64_t rows = s.images * (grouped_ ? groups_of(r) : s.pixels());
    std::vector<Row> list(static_cast<std::size_t>(rows));
    const std::int64_t width = grouped_ ? s.channels / groups_of(r) : s.channels;
    std::size_t i = 0;
    for (std::int64_t n = 0; n < s.images; ++n) {
      for (std::int64_t c = 0; c < s.channels; ++c) {
        for (std::int64_t p = 0; p < s.pixels(); ++p) {
          Row& row = list[static_cast<std::size_t>(grouped_ ? n * groups_of(r) + c / width : n * s.pixels() + p)];
          row.at.push_back(i++);
          row.channel.push_back(static_cast<std::size_t>(c));
        }
      }
    }
    return list;
  }

  void judge_out(Finding& finding, const Request& r, const Tensors& t, std::int64_t number,
                 const std::vector<double>& x, const std::vector<double>& found, const Parameters& parameters) const {
    std::vector<Quad> exact(x.size());
    const rn_rms_norm_options o = options(r);
    const Quad inv = rms_norm(exact.data(), x.data(), static_cast<std::int64_t>(x.size()), r.x, parameters, o);
    NormRow row = {"out", number, t["out"].slot.type, found, exact, parameters};
    if (o.rounding == RN_ROUND_BEFORE_WEIGHT && (r.x == RN_F16 || r.x == RN_BF16)) {
      row.x = &x;
      row.x_type = r.x;
      row.inv = inv;
    }
    row.signs = true;
    judge_norm_row(
        finding, row,
        budget(Judged::kRmsNorm, r.x, row.type, parameters.bias != nullptr, o.weight_offset != 0, o.rounding));
  }

  void judge_parameter(Finding& finding, const Request& r, const Tensors& t, std::string_view name,
                       const std::vector<Quad>& exact, const std::vector<Quad>& terms) const {
    if (!t.has(name)) return;
    std::vector<double> old;
    for (std::size_t i = 0; i < exact.size() && setting(*this, r, "accumulate") != 0; ++i) {
      old.push_back(load(t[name].slot.type, t[name].before.row(0), static_cast<std::int64_t>(i)));
    }
    const Sizes s(r.shape);
    judge_parameter_gradient(finding, t[name].slot.type, name, t.row(name, 0), old, exact, terms,
                             s.images * s.pixels());
  }

  std::string_view name_, summary_;
  bool grouped_, backward_;
};

}  // namespace

const Operation& rms_norm_channels_operation() {
  static const Channels op("rms_norm_channels", "RMSNorm over the channels of each pixel", false, false);
  return op;
}
const Operation& rms_norm_channels_backward_operation() {
  static const Channels op("rms_norm_channels_backward", "gradients of rms_norm_channels", false, true);
  return op;
}
const Operation& group_rms_norm_operation() {
  static const Channels op("group_rms_norm", "RMSNorm over groups of channels and all pixels", true, false);
  return op;
}
const Operation& group_rms_norm_backward_operation() {
  static const Channels op("group_rms_norm_backward", "gradients of group_rms_norm", true, true);
  return op;
}

}  // namespace rmsnorm::check
