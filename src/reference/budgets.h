// How far a stored result may be from the exact one. Everything that judges results asks here.
#ifndef RMSNORM_REFERENCE_BUDGETS_H_
#define RMSNORM_REFERENCE_BUDGETS_H_

#include "rmsnorm/rmsnorm.h"

namespace rmsnorm::reference {

// ---- The table, in ulp of the output's type ------------------------------------------------------------------------
inline constexpr double kRounded = 0.51;            // correctly rounded but next to ties: 16-bit out, `exact`, center
inline constexpr double kRmsNormF32 = 3;            // x * inv * weight
inline constexpr double kRmsNormF32Offset = 3.5;    // x * inv * (weight + offset)
inline constexpr double kLayerNormF32 = 4;          // (x - m) * inv_std * weight
inline constexpr double kAddend = 4.5;              // with a bias, in f32 ulps of the largest addend or the result
inline constexpr double kWideAddend = 0x1p-16;      // the same where products and sums are f64 (`exact`)
inline constexpr double kF64 = 4;                   // in ulps of the row's largest result or addend
inline constexpr double kMean = 0.6;                // mean error over a distribution
inline constexpr double kInnerTie = 0.01;           // `before_weight` may differ where x * inv is this near a tie
inline constexpr double kInnerTieOfF64 = 0x1p-39;   // and where quantising follows, with x * inv in f64
inline constexpr double kStatistic = 0.51;          // saved mean, inv_rms, inv_std, in ulps of their f32
inline constexpr double kStatisticOfF32Sums = 8;    // saved inv_rms of 16-bit rows: up to 32 squares meet in an f32
inline constexpr double kStatisticF64 = 4;          // the same in f64
inline constexpr double kMeanOfMagnitudes = 1e-12;  // and a saved mean this part of mean(|x|), for where terms cancel
inline constexpr double kSum = 4;                   // sums of slices, of ulps of the sum
inline constexpr double kGatedF32 = 5;              // x * inv * weight * silu(gate)
inline constexpr double kGradientF32 = 4;           // dx, dgate, in ulps of the largest term of the row
inline constexpr double kGradient16Bit = 1;
inline constexpr double kGradientF64 = 4;
inline constexpr double kParameterGradient = 1e-6;  // dweight, dbias before their last rounding: of the sum of |terms|
// A code may be the reference's neighbour where y / scale is within this many f32 ulps of the boundary between them.
inline constexpr double kBoundary = 8;
// Of a scale, in ulps: y, at most four f32 roundings from exact, is at most 4 ulps of the quotient; and the division.
inline constexpr double kScale = 4.5;

enum class Unit {
  kResult,           // ulps of the exact result
  kResultAndAddend,  // ulps of the exact result, plus `addend` f32 ulps of the element's largest addend
  kLargestAddend,    // ulps of the larger of result and addends
  kRow,              // ulps of the row's largest result or addend
  kLargestTerm,      // ulps of the row's largest term
  kResultAndTerms,   // ulps of the exact result, plus `addend` of the sum of absolute terms
  kSumOfTerms,       // parts of the sum of absolute terms
  kFromBoundary,     // f32 ulps from the boundary between two codes
  kReference,        // the reference's very number
};

struct Budget {
  double ulps;
  Unit unit;
  double addend = 0;

  bool operator==(const Budget&) const = default;
};

inline constexpr Budget kTheReferences = {0.5, Unit::kReference};

enum class Judged { kRmsNorm, kLayerNorm, kCenter };

inline Budget budget(Judged op, rn_type x_type, rn_type out_type, bool has_bias, bool has_offset,
                     rn_rounding rounding) {
  if (out_type == RN_F64) return {kF64, Unit::kRow};
  if (op == Judged::kCenter) return {kRounded, Unit::kResult};
  const bool wide = rounding == RN_ROUND_EXACT && op == Judged::kRmsNorm;
  const double addend = wide ? kWideAddend : kAddend;
  if (out_type != RN_F32 || wide) {
    return has_bias ? Budget{kRounded, Unit::kResultAndAddend, addend} : Budget{kRounded, Unit::kResult};
  }
  if (x_type == RN_F64) return {kRounded, has_bias ? Unit::kResultAndAddend : Unit::kResult, kWideAddend};
  if (has_bias) return {kAddend, Unit::kLargestAddend};
  if (op == Judged::kLayerNorm) return {kLayerNormF32, Unit::kResult};
  return {has_offset ? kRmsNormF32Offset : kRmsNormF32, Unit::kResult};
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_BUDGETS_H_
