// The options of the norms as keyword arguments: each with the library's own default.
#ifndef RMSNORM_PYTHON_OPTIONS_H_
#define RMSNORM_PYTHON_OPTIONS_H_

#include "call.h"

namespace rmsnorm::python {

// Arguments that many functions share, with their names and defaults.
inline auto optional(const char* name) { return nb::arg(name) = nb::none(); }
inline auto threads() { return nb::arg("threads") = 0; }

// In the order of the functions' own arguments.
inline auto rms_epsilon() { return nb::arg("epsilon") = rn_rms_norm_defaults().epsilon; }
inline auto layer_epsilon() { return nb::arg("epsilon") = rn_layer_norm_defaults().epsilon; }
inline auto weight_offset() { return nb::arg("weight_offset") = RmsNormOptions().weight_offset; }
inline auto epsilon_placement() { return nb::arg("epsilon_placement") = spelled(RmsNormOptions().epsilon_placement); }
inline auto rounding() { return nb::arg("rounding") = spelled(RmsNormOptions().rounding); }
inline auto partial() { return nb::arg("partial") = RmsNormOptions().partial; }
inline auto norm_input() { return nb::arg("norm_input") = spelled(AddRmsNormOptions().norm_input); }
inline auto accumulate() { return nb::arg("accumulate") = RmsNormBackwardOptions().accumulate; }

inline RmsNormOptions rms_options(const Call& call, double epsilon, double weight_offset,
                                  Choice<EpsilonPlacement> epsilon_placement, Choice<Rounding> rounding,
                                  std::int64_t partial) {
  return {epsilon, weight_offset, call.choice(epsilon_placement), call.choice(rounding), partial};
}

}  // namespace rmsnorm::python

#endif  // RMSNORM_PYTHON_OPTIONS_H_
