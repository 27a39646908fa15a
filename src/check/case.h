// One case: an operation, its operands' types and layout, options and execution. It is the line that a failing test
// prints and that `rmsnorm check` runs again.
#ifndef RMSNORM_CHECK_CASE_H_
#define RMSNORM_CHECK_CASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "reference/values.h"
#include "rmsnorm/rmsnorm.h"

namespace rmsnorm::check {

enum class Op { kRmsNorm, kLayerNorm, kAddRmsNorm, kAddLayerNorm, kCenter };

inline constexpr Op kAllOps[] = {Op::kRmsNorm, Op::kLayerNorm, Op::kAddRmsNorm, Op::kAddLayerNorm, Op::kCenter};

std::string_view name_of(Op op);
std::optional<Op> op_named(std::string_view name);
std::optional<rn_type> type_named(std::string_view name);

constexpr bool is_add(Op op) { return op == Op::kAddRmsNorm || op == Op::kAddLayerNorm; }
constexpr bool is_rms(Op op) { return op == Op::kRmsNorm || op == Op::kAddRmsNorm; }
constexpr bool is_layer(Op op) { return op == Op::kLayerNorm || op == Op::kAddLayerNorm; }
constexpr bool is_16bit(rn_type type) { return type == RN_F16 || type == RN_BF16; }

struct Case {
  Op op = Op::kRmsNorm;
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  rn_type x = RN_F32;
  rn_type out = RN_F32;
  std::optional<rn_type> weight;  // values `weight`
  std::optional<rn_type> bias;    // values `normal`
  rn_type residual = RN_F32;      // of the add operations; same values as x, another stream
  rn_type residual_out = RN_F32;

  std::int64_t stride = 0;  // elements from row to row of every matrix; 0: cols
  std::int64_t offset = 0;  // elements from a 64-byte boundary to the start of every operand
  reference::Values values = reference::Values::kNormal;
  std::uint64_t seed = 1;

  double epsilon = 1e-6;
  double weight_offset = 0;
  rn_epsilon_placement epsilon_placement = RN_EPSILON_INSIDE;
  rn_rounding rounding = RN_ROUND_ONCE;
  std::int64_t partial = 0;
  rn_norm_input norm_input = RN_NORM_ROUNDED_SUM;

  std::string target;  // empty: the one in use
  std::int32_t threads = 1;
  bool in_place = false;
};

// A case of an operation with all operands of one type and the operation's own defaults.
Case make_case(Op op, rn_type type, std::int64_t rows, std::int64_t cols);

// A number in as few digits as read back the same.
std::string shortest(double value);

// "rmsnorm check rms_norm x=3x70:bf16@stride=77,values=cauchy,seed=5 w=f32 out=bf16 --epsilon 0": all that differs from
// the defaults.
std::string command_line(const Case& c);

// Takes one operand, "x=ROWSxCOLS:TYPE[@stride=N,offset=N,values=NAME,seed=N]", "w=TYPE", "b=TYPE", "residual=TYPE",
// "residual_out=TYPE" or "out=TYPE", over into the case; returns "" or what is wrong with it. x= sets the other
// operands to its type as well, so it comes first.
std::string parse_operand(std::string_view text, Case& c);

// The names of the options' values, as the command line spells them.
inline constexpr std::string_view kPlacementNames[] = {"inside", "outside"};
inline constexpr std::string_view kRoundingNames[] = {"once", "before_weight", "exact"};
inline constexpr std::string_view kNormInputNames[] = {"rounded", "unrounded"};

}  // namespace rmsnorm::check

#endif  // RMSNORM_CHECK_CASE_H_
