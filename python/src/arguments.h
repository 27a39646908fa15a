// The types of arguments and results in Python's eyes. An argument is looked at in the function that takes it, which
// knows its name; until then it is a handle. The names here end up in docstrings and in the type stub, where nanobind adds
// "| None" to arguments whose default is None.
#ifndef RMSNORM_PYTHON_ARGUMENTS_H_
#define RMSNORM_PYTHON_ARGUMENTS_H_

#include <nanobind/nanobind.h>

#include "rmsnorm/rmsnorm.hpp"

namespace rmsnorm::python {

namespace nb = nanobind;

// An input; an input that may be None.
struct Array {
  nb::handle object;
};
struct OptionalArray {
  nb::handle object;
};

// An output: an array, or None: it is made.
struct Output {
  nb::handle object;
};

// An output that nobody has to want: an array, True: it is made, None: there is none.
struct OptionalOutput {
  nb::handle object;
};

// What a function returns: its one output, or a tuple of them.
struct Result {
  nb::object object;
};

// An enumeration of the library as Python spells it: kNames[i] is the value i.
template <class E>
struct Spelling;

template <class E>
struct Choice {
  nb::handle object;
};

#define RMSNORM_SPELLING(Enum, argument, rule, ...)                 \
  template <>                                                       \
  struct Spelling<Enum> {                                           \
    static constexpr const char* kArgument = argument;              \
    static constexpr const char* kRule = rule;                      \
    static constexpr auto kType = nb::detail::const_name("" #Enum); \
    static constexpr const char* kNames[] = {__VA_ARGS__};          \
  }
RMSNORM_SPELLING(EpsilonPlacement, "epsilon_placement", "'inside' or 'outside'", "inside", "outside");
RMSNORM_SPELLING(Rounding, "rounding", "'once', 'before_weight' or 'exact'", "once", "before_weight", "exact");
RMSNORM_SPELLING(NormInput, "norm_input", "'rounded_sum' or 'unrounded_sum'", "rounded_sum", "unrounded_sum");
RMSNORM_SPELLING(GateOrder, "gate_order", "'last' or 'first'", "last", "first");
RMSNORM_SPELLING(RopeLayout, "rope_layout", "'half_split' or 'interleaved'", "half_split", "interleaved");
RMSNORM_SPELLING(Scaling, "scaling", "'static', 'per_row' or 'per_group'", "static", "per_row", "per_group");
#undef RMSNORM_SPELLING

// A default as Python shows it.
template <class E>
const char* spelled(E value) {
  return Spelling<E>::kNames[static_cast<int>(value)];
}

}  // namespace rmsnorm::python

namespace nanobind::detail {

#define RMSNORM_CASTER(Type, name)                                     \
  template <>                                                          \
  struct type_caster<rmsnorm::python::Type> {                          \
    NB_TYPE_CASTER(rmsnorm::python::Type, const_name(name))            \
    bool from_python(handle source, uint8_t, cleanup_list*) noexcept { \
      value.object = source;                                           \
      return true;                                                     \
    }                                                                  \
  }
RMSNORM_CASTER(Array, "Array");
RMSNORM_CASTER(OptionalArray, "Array");
RMSNORM_CASTER(Output, "Array");
RMSNORM_CASTER(OptionalOutput, "Array | bool");
#undef RMSNORM_CASTER

template <class E>
struct type_caster<rmsnorm::python::Choice<E>> {
  NB_TYPE_CASTER(rmsnorm::python::Choice<E>, rmsnorm::python::Spelling<E>::kType)
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
};

template <>
struct type_caster<rmsnorm::python::Result> {
  NB_TYPE_CASTER(rmsnorm::python::Result, const_name("Result"))
  static handle from_cpp(rmsnorm::python::Result&& result, rv_policy, cleanup_list*) noexcept {
    return result.object.release();
  }
};

}  // namespace nanobind::detail

#endif  // RMSNORM_PYTHON_ARGUMENTS_H_
