// Known bugs, switched on one at a time in a copy of the scalar kernels (mutate.cmake puts them in). The tests must see
// each of them.
#ifndef RMSNORM_TEST_MUTANTS_MUTANTS_H_
#define RMSNORM_TEST_MUTANTS_MUTANTS_H_

#include <bit>
#include <cstdint>

#include "core/float16.h"

namespace rmsnorm {

enum class Mutant {
  kNone,
  kTruncatingConversion,
  kMissingTail,
  kEpsilonOutside,
  kNotRoundedBeforeWeight,
  kWeightRoundedEarly,
  kVarianceByDifference,
  kMeanOfPlainSum,
  kSquaresInF32,
  kRowOffset32,
  kOverflowKept,
  kPartialDividedByAll,
  kUnroundedSum,
  // Of the operations described as data.
  kGradientWithoutWeight,
  kBiasGradientWeighted,
  kArrivingGradientDropped,
  kGateSlopeIsSilu,
  kGroupMeanOverRow,
  kGatedInverseSquared,
  kCodesRoundedDown,
  kLowestCodeMinus128,
  kPowerOfTwoDown,
  kPairsTakenAsHalves,
  kPositionsIgnored,
  kSineNegated,
  kChannelOffsetDropped,
  kSliceMeanOverSlice,
  kEnd,
};

extern Mutant active_mutant;

inline bool mutant(Mutant m) { return active_mutant == m; }

inline std::uint16_t mutant_to_bf16(float value) {
  if (!mutant(Mutant::kTruncatingConversion)) return f32_to_bf16(value);
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

}  // namespace rmsnorm

#endif  // RMSNORM_TEST_MUTANTS_MUTANTS_H_
