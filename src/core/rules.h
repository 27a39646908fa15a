// The rules that arguments of all operations share, and their messages.
#ifndef RMSNORM_CORE_RULES_H_
#define RMSNORM_CORE_RULES_H_

#include <cstdint>

#include "core/call.h"
#include "core/views.h"

namespace rmsnorm {

// The types that operands may have beside an x of a given type.
struct TypeRules {
  uint32_t out, residual, weight, statistic;
};
TypeRules rules_for(rn_type x);

// A view that must be there.
rn_status require(const char* function, const char* name, const void* view);

// options.NAME: a finite number, and one of an enumeration that counts from 0.
rn_status check_number(const char* function, const char* name, double value, bool may_be_negative);
rn_status check_choice(const char* function, const char* name, int value, int last, const char* rule);

// What the forward and backward norms have in common: epsilon, weight_offset, epsilon_placement, rounding, partial.
// Enumerations as numbers, since callers may hand over any.
struct NormOptions {
  double epsilon = 0;
  double weight_offset = 0;
  int epsilon_placement = RN_EPSILON_INSIDE;
  int rounding = RN_ROUND_ONCE;
  int64_t partial = 0;
};
NormOptions norm_options(const rn_rms_norm_options& options);
NormOptions norm_options(const rn_layer_norm_options& options);
rn_status check_norm_options(const char* function, const NormOptions& options, int64_t cols);

// options.norm_input of the forms with a residual.
rn_status check_norm_input(const char* function, int norm_input);

// What is said of the whole row where x is a slice of it.
inline constexpr int64_t kMaxTotalCols = int64_t{1} << 40;
rn_status check_slice(const char* function, int64_t partial, int64_t total_cols);

// Fills `execution` from an argument that may be null.
rn_status check_execution(const char* function, const rn_execution* given, rn_execution* execution);

// Scratch of at least `needed` bytes for f64, into `memory`; null where none is needed. sizes: the function that says
// how much; wanted: when it must be there, null for always.
rn_status check_scratch(const char* function, const rn_scratch* scratch, int64_t needed, const char* sizes,
                        const char* wanted, double** memory);

// Takes the operands of a call in, one after another, and remembers the first thing that is wrong. Absent views
// (null) are left out.
class Taker {
 public:
  Taker(const char* function, RowShape* shape) : function_(function), shape_(shape) {}

  // x comes first: it sets the shape and the types of the others.
  void x(const OperandRule& rule, const rn_view* view, Operand* operand);
  void required(const OperandRule& rule, const rn_view* view, Operand* operand);
  void optional(const OperandRule& rule, const rn_view* view, Operand* operand);
  // Any other check, made only while nothing is wrong.
  template <class Check>
  void also(const Check& check) {
    if (status_ == RN_OK) status_ = check();
  }

  rn_status status() const { return status_; }
  bool ok() const { return status_ == RN_OK; }

 private:
  const char* function_;
  RowShape* shape_;
  const rn_view* x_ = nullptr;
  rn_status status_ = RN_OK;
};

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_RULES_H_
