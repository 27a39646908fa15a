# Copies the kernels and plants the bugs of mutants.h. A place that is not found is an error: a kernel was rewritten, and
# its mutants must move along.
file(REMOVE_RECURSE "${TO}")
file(COPY "${FROM}/" DESTINATION "${TO}/cpu")

function(plant file from to)
  file(READ "${TO}/cpu/${file}" text)
  string(FIND "${text}" "${from}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "mutants: ${file} no longer holds\n  ${from}")
  endif()
  string(REPLACE "${from}" "${to}" text "${text}")
  file(WRITE "${TO}/cpu/${file}" "${text}")
endfunction()

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
plant(layer_norm-inl.h "const double variance = raw.square / d - mean * mean"
  "if (mutant(Mutant::kVarianceByDifference)) {
    return {mean, static_cast<double>(static_cast<float>(raw.square / d) - static_cast<float>(mean * mean)), 0};
  }
  const double variance = raw.square / d - mean * mean")
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
