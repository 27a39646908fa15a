// The sums of slices and the norms of slices as data.
#include <algorithm>
#include <cmath>

#include "check/family.h"
#include "check/norm_judge.h"
#include "reference/sharded.h"

namespace rmsnorm::check {

using namespace reference;

namespace {

constexpr std::string_view kPlacements[] = {"inside", "outside"};
constexpr std::string_view kRoundings[] = {"once", "before_weight", "exact"};

constexpr Setting kTotalCols = {"total_cols", "columns of all slices; 0: those of x", 0, {}, true};
constexpr Setting kOffset = {"weight_offset", "added to each weight", 0};
constexpr Setting kAccumulate = {"accumulate", "1: dweight and dbias are added to", 0, {}, true};
constexpr Setting kRmsEpsilon = {"epsilon", "added to the mean square", 1e-6};
constexpr Setting kLayerEpsilon = {"epsilon", "added to the variance", 1e-5};
constexpr Setting kPlacement = {"epsilon_placement", "inside or outside the root", 0, kPlacements};
constexpr Setting kRounding = {"rounding", "once, before_weight or exact", 0, kRoundings};

constexpr Setting kCentredSumSettings[] = {kTotalCols};
constexpr Setting kProductSettings[] = {kOffset};
constexpr Setting kCentredProductSettings[] = {kTotalCols, kOffset};
constexpr Setting kRmsApplySettings[] = {kTotalCols, kRmsEpsilon, kOffset, kPlacement, kRounding};
constexpr Setting kLayerApplySettings[] = {kTotalCols, kLayerEpsilon, kOffset};
constexpr Setting kRmsBackwardSettings[] = {kTotalCols, kRmsEpsilon, kOffset, kPlacement, kAccumulate};
constexpr Setting kLayerBackwardSettings[] = {kTotalCols, kLayerEpsilon, kOffset, kAccumulate};

constexpr double kSmallestSquares = 0x1p-900;  // of made totals

enum class Stage { kSum, kSquares, kProducts, kApply, kBackward };

class Slice final : public Operation {
 public:
  Slice(std::string_view name, std::string_view summary, bool layer, Stage stage)
      : name_(name), summary_(summary), layer_(layer), stage_(stage) {}

  std::string_view name() const override { return name_; }
  std::string_view summary() const override { return summary_; }

  std::span<const Setting> settings() const override {
    switch (stage_) {
      case Stage::kSum:
        return {};
      case Stage::kSquares:
        return layer_ ? std::span<const Setting>(kCentredSumSettings) : std::span<const Setting>();
      case Stage::kProducts:
        return layer_ ? std::span<const Setting>(kCentredProductSettings) : std::span<const Setting>(kProductSettings);
      case Stage::kApply:
        return layer_ ? std::span<const Setting>(kLayerApplySettings) : std::span<const Setting>(kRmsApplySettings);
      default:
        return layer_ ? std::span<const Setting>(kLayerBackwardSettings)
                      : std::span<const Setting>(kRmsBackwardSettings);
    }
  }

  std::vector<std::pair<std::string_view, bool>> optional() const override {
    switch (stage_) {
      case Stage::kProducts:
        return {{"weight", true}};
      case Stage::kApply:
        if (layer_) return {{"mean", true}, {"inv_std", true}, {"weight", true}, {"bias", true}};
        return {{"inv_rms", true}, {"weight", true}, {"bias", false}};
      case Stage::kBackward:
        return {{"dweight", true}, {"dbias", layer_}, {"weight", true}};
      default:
        return {};
    }
  }

  std::vector<rn_type> types(std::string_view name, rn_type x) const override {
    const auto is = [&](std::initializer_list<std::string_view> names) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (is({"sum", "sum_squares", "sum_gradients", "sum_products"})) return {RN_F64};
    if (is({"mean", "inv_std", "inv_rms"})) return {x == RN_F64 ? RN_F64 : RN_F32};
    const bool others = is({"weight", "bias", "dweight", "dbias", "out", "dx", "dy"});
    return others ? types_beside(x) : std::vector<rn_type>();
  }

  std::vector<Slot> slots(const Request& r) const override {
    if (r.shape.empty()) throw std::invalid_argument("x has no axis; it must have at least one");
    std::vector<Slot> list;
    Shape rows(r.shape.begin(), r.shape.end() - 1);
    if (rows.empty()) rows = {1};
    const auto add = [&](std::string_view name, Role role, const Shape& shape, Values values,
                         std::string_view alias = "") {
      Slot slot = {name, role, name == "x" ? r.x : r.type_of(name, types(name, r.x).front()), shape, values, alias};
      slot.row_padding = shape != rows;
      list.push_back(slot);
    };
    const auto maybe = [&](std::string_view name, Role role, const Shape& shape, Values values) {
      for (const auto& [optional_name, present] : optional()) {
        if (optional_name == name && r.has(name, present)) add(name, role, shape, values);
      }
    };
    const Shape vector = {r.shape.back()};
    const auto result = [&](std::string_view name) { add(name, Role::kOutput, rows, Values::kNormal); };
    // What `prepare` does not fill, the benchmark's, must be sums that squares can have.
    const auto given = [&](std::string_view name) { add(name, Role::kInput, rows, Values::kLognormal); };
    const auto parameter = [&](std::string_view name) {
      maybe(name, Role::kInput, vector, name == "weight" ? Values::kWeight : Values::kNormal);
    };
    const auto x = [&] { add("x", Role::kInput, r.shape, r.values); };
    const auto alias = [&](std::string_view output, std::string_view input) {
      return r.type_of(output, r.x) == r.type_of(input, r.x) ? input : std::string_view();
    };
    switch (stage_) {
      case Stage::kSum:
        result("sum");
        x();
        break;
      case Stage::kSquares:
        result("sum_squares");
        x();
        if (layer_) given("sum");
        break;
      case Stage::kProducts:
        if (layer_) result("sum_gradients");
        result("sum_products");
        add("dy", Role::kInput, r.shape, Values::kNormal);
        x();
        if (layer_) given("sum");
        parameter("weight");
        break;
      case Stage::kApply:
        add("out", Role::kOutput, r.shape, Values::kNormal, alias("out", "x"));
        maybe("mean", Role::kOutput, rows, Values::kNormal);
        maybe(inv(), Role::kOutput, rows, Values::kNormal);
        x();
        if (layer_) given("sum");
        given("sum_squares");
        parameter("weight");
        parameter("bias");
        break;
      case Stage::kBackward:
        add("dx", Role::kOutput, r.shape, Values::kNormal, alias("dx", "dy"));
        for (const std::string_view name : {std::string_view("dweight"), std::string_view("dbias")}) {
          maybe(name, Role::kOutput, vector, Values::kNormal);
          if (list.back().name != name) continue;
          list.back().holds_values = setting(*this, r, "accumulate") != 0;
        }
        add("dy", Role::kInput, r.shape, Values::kNormal);
        x();
        if (layer_) given("sum");
        given("sum_squares");
        if (layer_) given("sum_gradients");
        given("sum_products");
        parameter("weight");
        break;
    }
    return list;
  }

  // The totals are those of rows of which x is a part: its own sums, enlarged as the columns are.
  void prepare(const Request& r, Tensors& t) const override {
    const std::int64_t rows = t["x"].rows(), cols = t["x"].cols();
    const Held held(*this, r, t);
    const double share = total_cols(r, t) / static_cast<double>(std::max<std::int64_t>(cols, 1));
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::vector<double> x = t.row("x", row), dy = t.row("dy", row);
      Totals totals;
      totals.cols = total_cols(r, t);
      const double* gradient = dy.empty() ? nullptr : dy.data();
      totals.sum = slice_sums<double>(x.data(), nullptr, cols, held.parameters, 0).sum * share;
      const auto sums =
          slice_sums<double>(x.data(), gradient, cols, held.parameters, static_cast<double>(totals.mean(layer_)));
      // Squares of f64 that underflow: those of a row with larger elements elsewhere.
      const bool lost = sums.squares < kSmallestSquares && sums.magnitudes > 0;
      fill(t, "sum", row, totals.sum);
      fill(t, "sum_squares", row, (lost ? kSmallestSquares : sums.squares) * share);
      fill(t, "sum_gradients", row, sums.gradients * share);
      fill(t, "sum_products", row, sums.products * share);
    }
  }

  std::int64_t scratch_bytes(const Request& r) const override {
    return stage_ == Stage::kBackward ? backward_scratch_bytes(r.shape) : 0;
  }

  rn_status call(const Request& r, const Tensors& t, const rn_execution& execution) const override {
    const auto view = [&](std::string_view name) { return t.view(name); };
    const auto columns = static_cast<std::int64_t>(total_cols(r, t));
    const double offset = number(r, "weight_offset", 0);
    switch (stage_) {
      case Stage::kSum:
        return rn_layer_sum(view("sum"), view("x"), &execution);
      case Stage::kSquares:
        return layer_ ? rn_layer_sum_squares(view("sum_squares"), view("x"), view("sum"), columns, &execution)
                      : rn_rms_sum_squares(view("sum_squares"), view("x"), &execution);
      case Stage::kProducts:
        return layer_ ? rn_layer_backward_sums(view("sum_gradients"), view("sum_products"), view("dy"), view("x"),
                                               view("sum"), columns, view("weight"), offset, &execution)
                      : rn_rms_backward_sum(view("sum_products"), view("dy"), view("x"), view("weight"), offset,
                                            &execution);
      case Stage::kApply:
        if (layer_) {
          const rn_layer_norm_options o{number(r, "epsilon", 0), offset};
          return rn_layer_norm_apply(view("out"), view("mean"), view("inv_std"), view("x"), view("sum"),
                                     view("sum_squares"), columns, view("weight"), view("bias"), &o, &execution);
        } else {
          const rn_rms_norm_options o = options(r);
          return rn_rms_norm_apply(view("out"), view("inv_rms"), view("x"), view("sum_squares"), columns,
                                   view("weight"), view("bias"), &o, &execution);
        }
      default:
        return call_backward(r, t, columns, execution);
    }
  }

  Finding judge(const Request& r, const Tensors& t) const override {
    Finding finding;
    const std::int64_t rows = t["x"].rows();
    const Held held(*this, r, t);
    Gradients gradients(static_cast<std::size_t>(t["x"].cols()));
    for (std::int64_t row = 0; row < rows; ++row) {
      Totals totals;
      totals.cols = total_cols(r, t);
      if (input(t, "sum")) totals.sum = given(t, "sum", row);
      if (input(t, "sum_squares")) totals.sum_squares = given(t, "sum_squares", row);
      if (input(t, "sum_gradients")) totals.sum_gradients = given(t, "sum_gradients", row);
      if (input(t, "sum_products")) totals.sum_products = given(t, "sum_products", row);
      switch (stage_) {
        case Stage::kApply:
          judge_apply(finding, r, t, held.parameters, totals, row);
          break;
        case Stage::kBackward:
          judge_backward(finding, r, t, held.parameters, totals, row, gradients);
          break;
        default:
          judge_sums(finding, t, held.parameters, totals, row);
      }
    }
    if (stage_ != Stage::kBackward) return finding;
    const Quad sum_dy = *std::max_element(gradients.bias_terms.begin(), gradients.bias_terms.end());
    judge_parameter(finding, r, t, "dweight", gradients.weight, gradients.weight_terms, sum_dy);
    judge_parameter(finding, r, t, "dbias", gradients.bias, gradients.bias_terms, sum_dy);
    return finding;
  }

  std::vector<Request> variants(rn_type x) const override {
    std::vector<Request> list(1);
    const auto another = [&]() -> Request& { return list.emplace_back(); };
    const auto has_setting = [&](std::string_view name) {
      const auto all = settings();
      return std::any_of(all.begin(), all.end(), [&](const Setting& s) { return s.name == name; });
    };
    const auto given = [&](std::initializer_list<std::pair<const std::string, double>> values) {
      std::map<std::string, double, std::less<>> known;
      for (const auto& value : values) {
        if (has_setting(value.first)) known.insert(value);
      }
      return known;
    };
    if (!settings().empty()) another().settings = given({{"total_cols", 9000}, {"weight_offset", 1}});
    if (has_setting("epsilon")) {
      another().settings = {{"epsilon", 0}};
      list.back().in_place = true;
    }
    if (has_setting("epsilon_placement")) {
      another().settings = {{"epsilon_placement", 1}, {"epsilon", 1e-2}};
      list.back().present = {{"weight", false}, {"dweight", false}};
      another().settings = {{"epsilon_placement", 1}, {"epsilon", 0}};
    }
    if (has_setting("rounding")) {
      another().settings = {{"rounding", 1}};
      another().settings = {{"rounding", 2}};
      list.back().present = {{"bias", true}};
    }
    if (has_setting("accumulate")) {
      another().settings = {{"accumulate", 1}};
      list.back().present = {{"dbias", true}};
    }
    if (stage_ >= Stage::kProducts) {
      Request& other = another();
      for (const std::string_view name : {"out", "dx", "dy", "weight", "dweight", "bias"}) {
        other.types[std::string(name)] = types(name, x).empty() ? x : types(name, x).back();
      }
    }
    for (Request& r : list) r.x = x;
    return list;
  }

 private:
  // The parameters of a request, widened.
  struct Held {
    std::vector<double> weight, bias;
    Parameters parameters;
    Held(const Slice& op, const Request& r, const Tensors& t) : weight(t.row("weight", 0)), bias(t.row("bias", 0)) {
      // The sums take the factor as it is formed: in f32 but for f64 rows.
      const double offset = op.number(r, "weight_offset", 0);
      if (op.stage_ == Stage::kProducts && r.x != RN_F64) {
        for (double& w : weight) w = round_to(RN_F32, static_cast<Quad>(w) + static_cast<Quad>(offset));
        parameters = {weight.empty() ? nullptr : weight.data(), nullptr, 0};
        return;
      }
      parameters = {weight.empty() ? nullptr : weight.data(), bias.empty() ? nullptr : bias.data(), offset};
    }
  };

  struct Gradients {
    std::vector<Quad> weight, weight_terms, bias, bias_terms;
    explicit Gradients(std::size_t d) : weight(d), weight_terms(d), bias(d), bias_terms(d) {}
  };

  std::string_view inv() const { return layer_ ? "inv_std" : "inv_rms"; }

  double number(const Request& r, std::string_view name, double otherwise) const {
    const auto all = settings();
    const bool has = std::any_of(all.begin(), all.end(), [&](const Setting& s) { return s.name == name; });
    return has ? setting(*this, r, name) : otherwise;
  }
  double total_cols(const Request& r, const Tensors& t) const {
    const double given = number(r, "total_cols", 0);
    return given == 0 ? static_cast<double>(std::max<std::int64_t>(t["x"].cols(), 1)) : given;
  }
  rn_rms_norm_options options(const Request& r) const {
    return {number(r, "epsilon", 0), number(r, "weight_offset", 0),
            static_cast<rn_epsilon_placement>(number(r, "epsilon_placement", 0)),
            static_cast<rn_rounding>(number(r, "rounding", 0)), 0};
  }

  static bool input(const Tensors& t, std::string_view name) {
    return t.has(name) && t[name].slot.role == Role::kInput;
  }
  static double given(const Tensors& t, std::string_view name, std::int64_t row) {
    return load(RN_F64, t[name].before.row(0), row);
  }
  static void fill(Tensors& t, std::string_view name, std::int64_t row, double value) {
    for (Tensor& tensor : t.all) {
      if (tensor.slot.name != name || tensor.slot.role != Role::kInput) continue;
      store(RN_F64, tensor.matrix.row(0), row, value);
      store(RN_F64, tensor.before.row(0), row, value);
    }
  }

  rn_status call_backward(const Request& r, const Tensors& t, std::int64_t columns,
                          const rn_execution& execution) const {
    const rn_scratch scratch = t.scratch();
    const auto view = [&](std::string_view name) { return t.view(name); };
    const auto accumulate = static_cast<std::int32_t>(number(r, "accumulate", 0));
    if (layer_) {
      const rn_layer_norm_backward_options o{{number(r, "epsilon", 0), number(r, "weight_offset", 0)}, accumulate};
      return rn_layer_norm_backward_apply(view("dx"), view("dweight"), view("dbias"), view("dy"), view("x"),
                                          view("sum"), view("sum_squares"), view("sum_gradients"), view("sum_products"),
                                          columns, view("weight"), &scratch, &o, &execution);
    }
    const rn_rms_norm_backward_options o{options(r), accumulate};
    return rn_rms_norm_backward_apply(view("dx"), view("dweight"), view("dbias"), view("dy"), view("x"),
                                      view("sum_squares"), view("sum_products"), columns, view("weight"), &scratch, &o,
                                      &execution);
  }

  void judge_sums(Finding& finding, const Tensors& t, const Parameters& parameters, const Totals& totals,
                  std::int64_t row) const {
    const std::vector<double> x = t.row("x", row), dy = t.row("dy", row);
    const auto sums = slice_sums<Quad>(x.data(), dy.empty() ? nullptr : dy.data(), static_cast<std::int64_t>(x.size()),
                                       parameters, totals.mean(layer_));
    // f64 rows are summed with compensation: ulps of the sum of absolute terms. Others: a part of it.
    const bool wide = t["x"].slot.type == RN_F64;
    const auto judge = [&](std::string_view name, Quad exact, Quad terms) {
      const double found = load(RN_F64, t[name].matrix.row(0), row);
      judge_statistic(finding, RN_F64, name, row, found, exact,
                      {kSum, Unit::kResultAndTerms, wide ? kSum * 0x1p-53 : kMeanOfMagnitudes}, terms);
    };
    if (stage_ == Stage::kSum) judge("sum", sums.sum, sums.magnitudes);
    if (stage_ == Stage::kSquares) judge("sum_squares", sums.squares, sums.squares);
    if (stage_ == Stage::kProducts) judge("sum_products", sums.products, sums.product_magnitudes);
    if (stage_ == Stage::kProducts && layer_) judge("sum_gradients", sums.gradients, sums.gradient_magnitudes);
  }

  void judge_apply(Finding& finding, const Request& r, const Tensors& t, const Parameters& parameters,
                   const Totals& totals, std::int64_t row) const {
    const std::vector<double> x = t.row("x", row), found = t.row("out", row);
    std::vector<Quad> exact(x.size());
    const Quad scale = slice_norm(exact.data(), x.data(), static_cast<std::int64_t>(x.size()), r.x, parameters, totals,
                                  layer_, options(r));
    const auto rounding = static_cast<rn_rounding>(number(r, "rounding", 0));
    NormRow judged = {"out", row, t["out"].slot.type, found, exact, parameters};
    if (rounding == RN_ROUND_BEFORE_WEIGHT && (r.x == RN_F16 || r.x == RN_BF16)) {
      judged.x = &x;
      judged.x_type = r.x;
      judged.inv = scale;
    }
    judged.signs = !layer_;
    judge_norm_row(finding, judged,
                   budget(layer_ ? Judged::kLayerNorm : Judged::kRmsNorm, r.x, judged.type, parameters.bias != nullptr,
                          parameters.weight_offset != 0, rounding));
    const auto judge = [&](std::string_view name, Quad value) {
      if (!t.has(name)) return;
      const rn_type type = t[name].slot.type;
      judge_statistic(finding, type, name, row, load(type, t[name].matrix.row(0), row), value,
                      {type == RN_F64 ? kStatisticF64 : kStatistic, Unit::kResult});
    };
    judge(inv(), scale);
    judge("mean", totals.mean(true));
  }

  void judge_backward(Finding& finding, const Request& r, const Tensors& t, const Parameters& parameters,
                      const Totals& totals, std::int64_t row, Gradients& gradients) const {
    const std::vector<double> x = t.row("x", row), dy = t.row("dy", row);
    const GradientRow<Quad> exact = slice_norm_backward(dy.data(), x.data(), static_cast<std::int64_t>(x.size()),
                                                        parameters, totals, layer_, options(r));
    judge_gradient_row(finding, t["dx"].slot.type, "dx", row, t.row("dx", row), exact);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Quad term = static_cast<Quad>(dy[i]) * exact.normalised[i];
      gradients.weight[i] += term;
      gradients.weight_terms[i] += absolute(term);
      gradients.bias[i] += static_cast<Quad>(dy[i]);
      gradients.bias_terms[i] += absolute(static_cast<Quad>(dy[i]));
    }
  }

  void judge_parameter(Finding& finding, const Request& r, const Tensors& t, std::string_view name,
                       const std::vector<Quad>& exact, const std::vector<Quad>& terms, Quad sum_dy) const {
    if (!t.has(name)) return;
    std::vector<double> old;
    for (std::size_t i = 0; i < exact.size() && number(r, "accumulate", 0) != 0; ++i) {
      old.push_back(load(t[name].slot.type, t[name].before.row(0), static_cast<std::int64_t>(i)));
    }
    judge_parameter_gradient(finding, t[name].slot.type, name, t.row(name, 0), old, exact, terms,
                             t["x"].rows() + sum_dy);
  }

  std::string_view name_, summary_;
  bool layer_;
  Stage stage_;
};

}  // namespace

#define RMSNORM_SLICE_OPERATION(NAME, SUMMARY, LAYER, STAGE)    \
  const Operation& NAME##_operation() {                         \
    static const Slice op(#NAME, SUMMARY, LAYER, Stage::STAGE); \
    return op;                                                  \
  }
RMSNORM_SLICE_OPERATION(rms_sum_squares, "sum of squares of a slice of each row", false, kSquares)
RMSNORM_SLICE_OPERATION(rms_norm_apply, "rms_norm of a slice, given the row's total", false, kApply)
RMSNORM_SLICE_OPERATION(rms_backward_sum, "the inner product that the gradient of a slice needs", false, kProducts)
RMSNORM_SLICE_OPERATION(rms_norm_backward_apply, "gradients of rms_norm_apply", false, kBackward)
RMSNORM_SLICE_OPERATION(layer_sum, "sum of a slice of each row", true, kSum)
RMSNORM_SLICE_OPERATION(layer_sum_squares, "sum of squares of a slice around the row's mean", true, kSquares)
RMSNORM_SLICE_OPERATION(layer_norm_apply, "layer_norm of a slice, given the row's totals", true, kApply)
RMSNORM_SLICE_OPERATION(layer_backward_sums, "the sums that the gradient of a slice needs", true, kProducts)
RMSNORM_SLICE_OPERATION(layer_norm_backward_apply, "gradients of layer_norm_apply", true, kBackward)
#undef RMSNORM_SLICE_OPERATION

}  // namespace rmsnorm::check
