# Copies the kernels and plants the bugs of mutants.h.
file(REMOVE_RECURSE "${TO}")
file(COPY "${FROM}/" DESTINATION "${TO}/cpu")

include("${CMAKE_CURRENT_LIST_DIR}/plant.cmake")
set(planted "${TO}/cpu")

plant(simd_scalar.h "f32_to_bf16(" "mutant_to_bf16(")
plant(moments-inl.h "if (i < end) return lanes.fold_with_part"
  "if (i < end && !mutant(Mutant::kMissingTail)) return lanes.fold_with_part")
plant(rms_norm-inl.h "call.epsilon_outside ?" "call.epsilon_outside != mutant(Mutant::kEpsilonOutside) ?")
plant(apply-inl.h "if constexpr (kStyle == Style::kRoundedScale) v = X::round(v)"
                  "if (kStyle == Style::kRoundedScale && !mutant(Mutant::kNotRoundedBeforeWeight)) v = X::round(v)")
plant(apply-inl.h "return has_offset_ != 0 ? Pair{add(weight.a, offset_), add(weight.b, offset_)} : weight"
  "Pair w = has_offset_ != 0 ? Pair{add(weight.a, offset_), add(weight.b, offset_)} : weight;
    if (mutant(Mutant::kWeightRoundedEarly)) w = {round_bf16(w.a), round_bf16(w.b)};
    return w")
plant(layer_norm-inl.h "const double variance = mean_square - mean * mean"
  "if (mutant(Mutant::kVarianceByDifference)) {
    return {mean, static_cast<double>(static_cast<float>(raw.square / d) - static_cast<float>(mean * mean)), 0};
  }
  const double variance = mean_square - mean * mean")
plant(layer_norm-inl.h "const bool exact = near_an_element(mean, mean_square)"
  "const bool exact = near_an_element(mean, mean_square) && !mutant(Mutant::kMeanOfPlainSum)")
plant(moments-inl.h "squares_[4 * pair + k] = add_exact_product(v.d[k], v.d[k], squares_[4 * pair + k])"
  "D square = mul(v.d[k], v.d[k]);
      if (mutant(Mutant::kSquaresInF32)) for (double& s : square.v) s = static_cast<double>(static_cast<float>(s));
      squares_[4 * pair + k] = add(squares_[4 * pair + k], square)")
plant(moments-inl.h "squares[k] = add_exact_product(v.d[k], v.d[k], squares[k])"
  "D square = mul(v.d[k], v.d[k]);
          if (mutant(Mutant::kSquaresInF32)) for (double& s : square.v) s = static_cast<double>(static_cast<float>(s));
          squares[k] = add(squares[k], square)")
plant(row-inl.h "static_cast<uint64_t>(operands[k]->strides[axis])"
  "(mutant(Mutant::kRowOffset32) ? static_cast<uint32_t>(operands[k]->strides[axis])
                                                             : static_cast<uint64_t>(operands[k]->strides[axis]))")
plant(rms_norm-inl.h "__builtin_expect(!usable, 0)" "!usable && !mutant(Mutant::kOverflowKept)")
plant(rms_norm-inl.h "square / static_cast<double>(call.partial)"
                     "square / static_cast<double>(mutant(Mutant::kPartialDividedByAll) ? call.cols : call.partial)")
plant(row-inl.h "X::kNarrow && round ?" "X::kNarrow && round && !mutant(Mutant::kUnroundedSum) ?")
plant(add-inl.h "      return X::template load<Split>(kept + i);"
  "      if (mutant(Mutant::kUnroundedSum)) return sum;
      return X::template load<Split>(kept + i);")

plant(backward_fast-inl.h "const Pair g = mul(dy, F32::load<false>(at.w + i));"
  "const Pair g = mutant(Mutant::kGradientWithoutWeight) ? dy : mul(dy, F32::load<false>(at.w + i));")
plant(backward_fast-inl.h "add(F32::load<false>(at.dbias + i), dy)"
  "add(F32::load<false>(at.dbias + i), mutant(Mutant::kBiasGradientWeighted) ? g : dy)")
plant(backward_fast-inl.h "if constexpr (kAdded) result ="
  "if (kAdded && !mutant(Mutant::kArrivingGradientDropped)) result =")
plant(gated_rms_norm_backward-inl.h "store(slope + i + k * kHalf, value.slope.v[k])"
  "store(slope + i + k * kHalf, mutant(Mutant::kGateSlopeIsSilu) ? value.silu.v[k] : value.slope.v[k])")
plant(gated_rms_norm_backward-inl.h "const double k = static_cast<double>(call_.width)"
  "const double k = static_cast<double>(mutant(Mutant::kGroupMeanOverRow) ? call_.cols : call_.width)")
plant(gated_rms_norm_backward-inl.h "inv * inv * (sums.product / k) * inv"
  "inv * inv * (sums.product / k) * (mutant(Mutant::kGatedInverseSquared) ? 1 : inv)")
plant(float8-inl.h "as_int(add(within, splat(0x1.8p23f)))"
  "as_int(add(mutant(Mutant::kCodesRoundedDown) ? sub(within, splat(0.5f)) : within, splat(0x1.8p23f)))")
plant(float8-inl.h "splat(-127.0f)" "splat(mutant(Mutant::kLowestCodeMinus128) ? -128.0f : -127.0f)")
plant(quantize-inl.h "bits = (bits + 0x7fffff) & 0x7f800000"
  "bits = (bits + (mutant(Mutant::kPowerOfTwoDown) ? 0 : 0x7fffff)) & 0x7f800000")
plant(qk_norm_rope-inl.h "if (call_.interleaved) {
          turn_pairs" "if (call_.interleaved && !mutant(Mutant::kPairsTakenAsHalves)) {
          turn_pairs")
plant(qk_norm_rope-inl.h "const int64_t position = position_at(walk[6])"
  "const int64_t position = mutant(Mutant::kPositionsIgnored) ? 0 : position_at(walk[6])")
plant(qk_norm_rope-inl.h "sub(mul(va, c), mul(vb, s))"
  "(mutant(Mutant::kSineNegated) ? add(mul(va, c), mul(vb, s)) : sub(mul(va, c), mul(vb, s)))")
plant(channel_kernels.cc "if (call.weight_offset == 0) return w;"
  "if (call.weight_offset == 0 || mutant(Mutant::kChannelOffsetDropped)) return w;")
plant(kernels.cc "static_cast<double>(call.total_cols)"
  "static_cast<double>(mutant(Mutant::kSliceMeanOverSlice) ? call.cols : call.total_cols)")
