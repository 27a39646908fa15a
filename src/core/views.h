// One rn_view argument after another: each is checked for itself and against x, and becomes an operand in bytes.
#ifndef RMSNORM_CORE_VIEWS_H_
#define RMSNORM_CORE_VIEWS_H_

#include <cstdint>
#include <span>

#include "core/call.h"

namespace rmsnorm {

// Numbers that are a type: 0 .. kTypes - 1.
inline constexpr int kTypes = RN_I64 + 1;

// A set of types has a bit for each.
constexpr uint32_t bit(rn_type type) { return 1u << type; }
inline constexpr uint32_t k16BitTypes = bit(RN_F16) | bit(RN_BF16);
inline constexpr uint32_t kFloatTypes = bit(RN_F32) | k16BitTypes | bit(RN_F64);

// How an operand's shape follows from x's.
enum class Form : uint8_t {
  kX,          // x itself: any shape
  kSame,       // x's shape
  kStatistic,  // one element a row: x's shape without the last axis, or [1]
  kBroadcast,  // right-aligned against x's shape, sizes equal or 1, the last one equal: weight and bias
  kVector,     // [cols], the same for all rows: gradients of parameters, and parameters where none may broadcast
  kChannels,   // [C], the size of x's second axis: parameters of images, and their gradients
  kOwnCols,    // x's leading axes and a last one of OperandRule::cols, of any stride: what a row has several of
};

struct OperandRule {
  const char* name;  // as the header spells the argument
  Form form;
  bool output;
  uint32_t types;        // those it may have
  int64_t cols = 0;      // kOwnCols: the size of its last axis
  const char* of = "x";  // the operand that its shape and type follow from
  bool pixels = false;   // the last axis is one of pixels, not the normalised one
};

inline constexpr int64_t kMaxCols = int64_t{1} << 31;
inline constexpr int64_t kMaxRows = int64_t{1} << 40;
inline constexpr int64_t kMaxSpan = int64_t{1}
                                    << 60;  // bytes from a tensor's first to its last; sums of spans cannot overflow

// Enumerations come from C callers and may hold any number; as an int they can be looked at without undefined
// behaviour.
template <class Enum>
int as_int(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number;
  __builtin_memcpy(&number, &value, sizeof number);
  return number;
}

// Bytes of one element; 0 for a number that is no type.
inline int64_t type_size(int type) {
  switch (type) {
    case RN_F32:
      return 4;
    case RN_F16:
    case RN_BF16:
      return 2;
    case RN_I32:
      return 4;
    case RN_I8:
    case RN_F8E4M3:
    case RN_F8E5M2:
      return 1;
    case RN_F64:
    case RN_I64:
      return 8;
    default:
      return 0;
  }
}

// Takes x in: sets all of `shape`, and the operand. Leading axes are those of the view, not yet collapsed.
rn_status take_x(const char* function, const OperandRule& rule, const rn_view& view, RowShape* shape, Operand* operand);

// Takes any other operand in, after x.
rn_status take_operand(const char* function, const OperandRule& rule, const rn_view& view, const rn_view& x,
                       const RowShape& shape, Operand* operand);

// Drops leading axes of size 1, orders the others by the stride of the first operand, and merges neighbours that every
// operand steps through evenly: what is dense in memory becomes one axis.
void collapse(RowShape* shape, std::span<Operand* const> operands);

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_VIEWS_H_
