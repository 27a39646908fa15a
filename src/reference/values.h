// Test data from integers alone: the same numbers on every platform, and any element on its own, so that a row can be
// made again without its batch. No std:: distributions and no libm.
#ifndef RMSNORM_REFERENCE_VALUES_H_
#define RMSNORM_REFERENCE_VALUES_H_

#include <optional>
#include <string_view>

#include "reference/format.h"

namespace rmsnorm::reference {

// SplitMix64's output function: a bijection that scatters neighbouring counters.
constexpr std::uint64_t scatter(std::uint64_t n) {
  n += 0x9e3779b97f4a7c15u;
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
  n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
  return n ^ (n >> 31);
}

enum class Values {
  kNormal,       // mean 0, standard deviation 1
  kLognormal,    // 2^normal
  kCauchy,       // heavy tails
  kConstant,     // one number a row
  kSpike,        // small, and one column of 9000 (f16: 9000 too): the outlier channels of language models
  kAlternating,  // +c, -c, ..: c is a little different in each row
  kOffset,       // mean = 10^4 standard deviations
  kTiny,         // rows near the smallest normal number and rows of subnormals
  kHuge,         // rows near the largest number, and (f32, bf16) rows of 1e25
  kMixed,        // f32, bf16: 1e25 among 1e-10; f16: 60000 among 1e-4; f64: 1e200 among 1e-100
  kSubnormal,    // subnormals only
  kZeros,        // all +0 and, in odd rows, all -0
  kNan,          // normal; odd rows hold one NaN: first, middle, last or in the tail
  kInfinity,     // normal; odd rows hold one infinity, placed likewise
  kWeight,       // 1 + normal / 4, what trained weights look like
  kWhole,        // whole numbers -8 .. 8
  kIndex,        // whole numbers 0 .. 15
};

struct NamedValues {
  Values values;
  std::string_view name;
};

inline constexpr NamedValues kNamedValues[] = {
    {Values::kNormal, "normal"},     {Values::kLognormal, "lognormal"}, {Values::kCauchy, "cauchy"},
    {Values::kConstant, "constant"}, {Values::kSpike, "spike"},         {Values::kAlternating, "alternating"},
    {Values::kOffset, "offset"},     {Values::kTiny, "tiny"},           {Values::kHuge, "huge"},
    {Values::kMixed, "mixed"},       {Values::kSubnormal, "subnormal"}, {Values::kZeros, "zeros"},
    {Values::kNan, "nan"},           {Values::kInfinity, "infinity"},   {Values::kWeight, "weight"},
    {Values::kWhole, "whole"},       {Values::kIndex, "index"},
};

constexpr std::string_view name_of(Values values) {
  for (const NamedValues& named : kNamedValues) {
    if (named.values == values) return named.name;
  }
  return "?";
}

constexpr std::optional<Values> values_named(std::string_view name) {
  for (const NamedValues& named : kNamedValues) {
    if (named.name == name) return named.values;
  }
  return std::nullopt;
}

// The operands of one case draw from one seed and different streams.
enum class Stream : std::uint64_t { kX, kResidual, kWeight, kBias };

namespace detail {

// A sum of eight 16-bit uniforms, scaled to variance 1: exact integers until the one multiplication.
inline double normal(std::uint64_t random) {
  std::int64_t sum = 0;
  for (const std::uint64_t word : {scatter(random), scatter(~random)}) {
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int64_t>(word >> shift & 0xffff);
  }
  return static_cast<double>(2 * sum - 8 * std::int64_t{0xffff}) * 0x1.3988e1409212ep-17;  // sqrt(3 / 2) / 2^17
}

// 2^v, its fraction's power as the parabola through 1, sqrt(2) and 2; integers keep it the same everywhere.
inline double power(double v) {
  const std::int64_t fixed = static_cast<std::int64_t>(v * 0x1p16 + 0x1p20) - (1 << 20);
  const std::int64_t fraction = fixed & 0xffff;
  const std::int64_t mantissa = (std::int64_t{1} << 32) + fraction * 43047 + ((fraction * fraction) >> 16) * 22489;
  return std::ldexp(static_cast<double>(mantissa), static_cast<int>(fixed >> 16) - 32);
}

// The quotient of the coordinates of a random point in the unit disc.
inline double cauchy(std::uint64_t random) {
  for (;;) {
    random = scatter(random);
    const std::int64_t a = static_cast<std::int32_t>(random), b = static_cast<std::int32_t>(random >> 32);
    const double u = static_cast<double>(a) * 0x1p-31, v = static_cast<double>(b) * 0x1p-31;
    if (b != 0 && u * u <= 1 - v * v) return u / v;
  }
}

// Numbers that lie in characteristic places of a type's range.
struct Landmarks {
  double huge, huge_odd_rows, tiny, tiny_odd_rows, mixed_large, mixed_small, smallest;
};

inline Landmarks landmarks(rn_type type) {
  switch (type) {
    case RN_F16:
      return {60000, 8000, 1e-4, 0x1p-20, 60000, 1e-4, 0x1p-24};
    case RN_BF16:
      return {3e38, 1e25, 1e-30, 1e-39, 1e25, 1e-10, 0x1p-133};
    case RN_F64:
      return {1e308, 1e200, 1e-300, 1e-315, 1e200, 1e-100, 0x1p-1074};
    default:
      break;
  }
  return {3e38, 1e25, 1e-30, 1e-42, 1e25, 1e-10, 0x1p-149};
}

// Where the one special element of a row stands.
inline std::int64_t special_column(std::int64_t row, std::int64_t cols, std::uint64_t seed) {
  const std::int64_t places[] = {0, cols / 2, cols - 1, cols - 1 - (cols % 8) / 2};
  return places[scatter(seed + static_cast<std::uint64_t>(row)) % 4];
}

}  // namespace detail

// A row before it is rounded to `type`, element by element.
class RowOfValues {
 public:
  RowOfValues(Values values, rn_type type, std::uint64_t seed, Stream stream, std::int64_t row, std::int64_t cols)
      : values_(values),
        type_(type),
        odd_row_(row % 2 != 0),
        spike_(static_cast<std::int64_t>(seed % static_cast<std::uint64_t>(cols))),
        special_(detail::special_column(row, cols, seed)),
        row_random_(scatter(scatter(seed * 4 + static_cast<std::uint64_t>(stream)) + static_cast<std::uint64_t>(row))),
        at_(detail::landmarks(type)) {}

  double operator()(std::int64_t col) const;

 private:
  Values values_;
  rn_type type_;
  bool odd_row_;
  std::int64_t spike_, special_;  // columns
  std::uint64_t row_random_;
  detail::Landmarks at_;
};

inline double RowOfValues::operator()(std::int64_t col) const {
  const std::uint64_t random = scatter(row_random_ + static_cast<std::uint64_t>(col));
  const double n = detail::normal(random);
  const double sign = n < 0 ? -1 : 1;
  const bool even_col = col % 2 == 0;
  // Between 1/2 and 1: keeps the landmarks' neighbourhood without passing them.
  const double shade = 0.5 + static_cast<double>(random >> 40) * 0x1p-25;
  switch (values_) {
    case Values::kNormal:
      return n;
    case Values::kLognormal:
      return detail::power(n);
    case Values::kCauchy:
      return detail::cauchy(random);
    case Values::kConstant:
      return 0.5 + static_cast<double>(row_random_ >> 40) * 0x1p-20;
    case Values::kSpike:
      return col == spike_ ? 9000 : n / 4;
    case Values::kAlternating:
      return (even_col ? 1 : -1) * (1 + static_cast<double>(row_random_ >> 60) / 16);
    case Values::kOffset:
      return type_ == RN_BF16 || type_ == RN_F16 ? 1000 + n * 8 : 10000 + n;
    case Values::kTiny:
      return sign * shade * (odd_row_ ? at_.tiny_odd_rows : at_.tiny);
    case Values::kHuge:
      return sign * shade * (odd_row_ ? at_.huge_odd_rows : at_.huge);
    case Values::kMixed:
      return sign * shade * (random % 5 == 0 ? at_.mixed_large : at_.mixed_small);
    case Values::kSubnormal:
      return sign * at_.smallest * static_cast<double>(1 + random % 100);
    case Values::kZeros:
      return odd_row_ ? -0.0 : 0.0;
    case Values::kWeight:
      return 1 + n / 4;
    case Values::kWhole:
      return static_cast<double>(static_cast<std::int64_t>(random % 17) - 8);
    case Values::kIndex:
      return static_cast<double>(random % 16);
    case Values::kNan:
    case Values::kInfinity:
      break;
  }
  if (!odd_row_ || col != special_) return n;
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  return values_ == Values::kNan ? std::numeric_limits<double>::quiet_NaN() : sign * kInfinite;
}

// Element (row, col) before it is rounded to `type`.
inline double draw(Values values, rn_type type, std::uint64_t seed, Stream stream, std::int64_t row, std::int64_t col,
                   std::int64_t cols) {
  return RowOfValues(values, type, seed, stream, row, cols)(col);
}

// Fills row `row` of an operand with elements of `type`.
inline void fill_row(void* data, Values values, rn_type type, std::uint64_t seed, Stream stream, std::int64_t row,
                     std::int64_t cols) {
  if (cols <= 0) return;
  const RowOfValues value(values, type, seed, stream, row, cols);
  for (std::int64_t col = 0; col < cols; ++col) store(type, data, col, value(col));
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_VALUES_H_
