#include "support/cases.h"

#include <algorithm>
#include <functional>

#include "support/covering.h"
#include "support/environment.h"

namespace rmsnorm::test {

using check::Case;
using check::Op;

namespace {

// Wide cases get fewer rows, and very wide ones fewer kinds of values: the judge takes most of a microsecond an
// element.
constexpr std::int64_t kElementsOfCase = 1 << 14;
constexpr std::int64_t kVeryWide = 10000;
constexpr reference::Values kVeryWideValues[] = {reference::Values::kNormal, reference::Values::kCauchy,
                                                 reference::Values::kOffset};

// One thing that varies: the number of its levels and how a level changes a case.
struct Factor {
  int levels;
  std::function<void(Case&, int)> apply;
};

template <class T>
Factor factor(std::vector<T> levels, void (*apply)(Case&, const T&)) {
  const int count = static_cast<int>(levels.size());
  return {count, [levels = std::move(levels), apply](Case& c, int level) {
            apply(c, levels[static_cast<std::size_t>(level)]);
          }};
}

// What the budget depends on goes together as one factor, so that every mode meets all values and widths.
struct Mode {
  rn_rounding rounding;
  double weight_offset;
  bool biased;
};

std::vector<Mode> modes_of(Op op) {
  std::vector<Mode> modes{{RN_ROUND_ONCE, 0, false}};  // the plain mode twice: most people's
  for (const rn_rounding rounding : {RN_ROUND_ONCE, RN_ROUND_BEFORE_WEIGHT, RN_ROUND_EXACT}) {
    if (rounding != RN_ROUND_ONCE && !is_rms(op)) break;
    for (const double offset : {0.0, 1.0}) {
      for (const bool biased : {false, true}) modes.push_back({rounding, offset, biased});
    }
  }
  return modes;
}

std::vector<std::optional<rn_type>> optional_types(rn_type x) {
  std::vector<std::optional<rn_type>> types{std::nullopt};
  for (const rn_type type : weight_types(x)) types.emplace_back(type);
  return types;
}

std::vector<Factor> factors_of(Op op, rn_type x) {
  std::vector<reference::Values> values;
  for (const auto& named : reference::kNamedValues) values.push_back(named.values);
  std::vector<std::int64_t> offsets(reduced() ? 4 : 16);
  for (std::size_t i = 0; i < offsets.size(); ++i) offsets[i] = static_cast<std::int64_t>(i);
  const bool parameters = op != Op::kCenter;

  std::vector<Factor> factors{
      factor<std::int64_t>(widths(), [](Case& c, const std::int64_t& width) { c.cols = width; }),
      factor<reference::Values>(values, [](Case& c, const reference::Values& v) { c.values = v; }),
      factor<std::int64_t>(offsets, [](Case& c, const std::int64_t& offset) { c.offset = offset; }),
      factor<std::int64_t>({1, 2, 3, 7, 17}, [](Case& c, const std::int64_t& rows) { c.rows = rows; }),
      factor<std::int64_t>({0, 1, 7, 64}, [](Case& c, const std::int64_t& more) { c.stride = more; }),
      factor<rn_type>(out_types(x), [](Case& c, const rn_type& type) { c.out = type; }),
      factor<std::string>(supported_targets(), [](Case& c, const std::string& target) { c.target = target; }),
      factor<int>({1, 2, 3}, [](Case& c, const int& threads) { c.threads = threads; }),
      factor<bool>({false, true}, [](Case& c, const bool& in_place) { c.in_place = in_place; }),
  };
  if (parameters) {
    factors.push_back(factor<std::optional<rn_type>>(
        optional_types(x), [](Case& c, const std::optional<rn_type>& type) { c.weight = type; }));
    factors.push_back(factor<rn_type>(weight_types(x), [](Case& c, const rn_type& type) { c.bias = type; }));
    factors.push_back(factor<Mode>(modes_of(op), [](Case& c, const Mode& mode) {
      c.rounding = mode.rounding;
      c.weight_offset = mode.weight_offset;
      if (!mode.biased) c.bias.reset();  // stands behind the bias's type
    }));
    factors.push_back(factor<double>({1e-6, 0, 1e-12, 1e-5, 0.1}, [](Case& c, const double& e) { c.epsilon = e; }));
  }
  if (is_rms(op)) {
    factors.push_back(
        factor<rn_epsilon_placement>({RN_EPSILON_INSIDE, RN_EPSILON_OUTSIDE},
                                     [](Case& c, const rn_epsilon_placement& p) { c.epsilon_placement = p; }));
    factors.push_back(factor<double>({0, 1e-9, 0.0625, 0.5, 1}, [](Case& c, const double& fraction) {
      c.partial = fraction == 0
                      ? 0
                      : std::max<std::int64_t>(1, static_cast<std::int64_t>(fraction * static_cast<double>(c.cols)));
    }));
  }
  if (is_add(op)) {
    const std::vector<rn_type> sums = check::is_16bit(x) ? std::vector<rn_type>{x, RN_F32} : std::vector<rn_type>{x};
    factors.push_back(factor<rn_type>(sums, [](Case& c, const rn_type& type) { c.residual = type; }));
    factors.push_back(factor<rn_type>(sums, [](Case& c, const rn_type& type) { c.residual_out = type; }));
    factors.push_back(factor<rn_norm_input>({RN_NORM_ROUNDED_SUM, RN_NORM_UNROUNDED_SUM},
                                            [](Case& c, const rn_norm_input& input) { c.norm_input = input; }));
  }
  return factors;
}

// Brings a combination of levels to a case that the contract allows and that a test can afford.
bool settle(Case& c) {
  if (c.cols > kVeryWide &&
      std::find(std::begin(kVeryWideValues), std::end(kVeryWideValues), c.values) == std::end(kVeryWideValues)) {
    return false;
  }
  c.rows = std::min(c.rows, std::max<std::int64_t>(1, kElementsOfCase / c.cols));
  if (c.stride != 0) c.stride += c.cols;
  if (c.out != c.x || (is_add(c.op) && c.residual != c.residual_out)) c.in_place = false;
  return true;
}

}  // namespace

std::vector<rn_type> out_types(rn_type x) {
  switch (x) {
    case RN_F32:
      return {RN_F32, RN_F16, RN_BF16};
    case RN_F64:
      return {RN_F64, RN_F32};
    default:
      return {x, RN_F32};
  }
}

std::vector<rn_type> weight_types(rn_type x) {
  if (x == RN_F64) return {RN_F64, RN_F32};
  return {RN_F32, RN_F16, RN_BF16};
}

std::vector<std::int64_t> widths() {
  if (reduced()) return {1, 2, 3, 7, 16, 31, 33, 64, 65, 70, 127, 257, 1000, 2051};
  std::vector<std::int64_t> list;
  for (std::int64_t width = 1; width <= 70; ++width) list.push_back(width);
  for (const std::int64_t width : {96,   127,  128,  129,  255,  256,  257,  511,  768,  1000,  1024,  1152,  2047,
                                   2048, 2049, 2880, 3584, 4093, 4096, 4097, 5120, 8192, 12288, 16384, 53248, 131072}) {
    list.push_back(width);
  }
  return list;
}

std::vector<Case> covering_cases(Op op, rn_type x) {
  const std::vector<Factor> factors = factors_of(op, x);
  std::vector<int> levels;
  for (const Factor& f : factors) levels.push_back(f.levels);
  std::vector<Case> cases;
  for (const std::vector<int>& row : pairwise(levels)) {
    Case c = check::make_case(op, x, 1, 1);
    for (std::size_t f = 0; f < factors.size(); ++f) factors[f].apply(c, row[f]);
    c.seed = cases.size() + 1;
    if (settle(c)) cases.push_back(c);
  }
  return cases;
}

}  // namespace rmsnorm::test
