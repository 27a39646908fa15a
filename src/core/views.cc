#include "core/views.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/status.h"

namespace rmsnorm {
namespace {

// An argument under inspection; what its messages start with.
struct Argument {
  const char* function;
  const OperandRule& rule;
  const rn_view& view;

  int64_t last() const { return view.rank - 1; }
  int64_t element() const { return type_size(view.type); }
  // Its last axis is the normalised one, or one of its own.
  bool has_rows() const { return rule.form != Form::kStatistic && rule.form != Form::kOwnCols; }
  bool has_columns() const { return rule.form != Form::kStatistic; }
  const char* last_name() const { return rule.pixels ? "last" : "normalised"; }
};

// "f32, f16 or bf16"
struct TypeList {
  char text[64] = "";

  explicit TypeList(uint32_t types) {
    int used = 0;
    for (int type = 0; type < kTypes; ++type) {
      if ((types >> type & 1u) == 0) continue;
      const bool is_last = (types >> type) == 1u;
      used += std::snprintf(text + used, sizeof text - static_cast<size_t>(used), "%s%s",
                            used == 0 ? "" : (is_last ? " or " : ", "), rn_type_name(static_cast<rn_type>(type)));
    }
  }
};

rn_status check_type(const Argument& a, const rn_view* x) {
  const int type = as_int(a.view.type);
  const bool is_type = type >= 0 && type < kTypes;
  if (is_type && (a.rule.types >> type & 1u) != 0) return RN_OK;
  const TypeList allowed(a.rule.types);
  char number[16];
  std::snprintf(number, sizeof number, "%d", type);
  const char* name = is_type ? rn_type_name(static_cast<rn_type>(type)) : number;
  if (x == nullptr) {
    return fail(RN_INVALID_TYPE, "%s: %s.type is %s; it must be %s", a.function, a.rule.name, name, allowed.text);
  }
  return fail(RN_INVALID_TYPE, "%s: %s.type is %s; it must be %s where %s is %s", a.function, a.rule.name, name,
              allowed.text, a.rule.of, rn_type_name(x->type));
}

rn_status check_rank_and_sizes(const Argument& a) {
  if (a.view.rank < 1 || a.view.rank > RN_MAX_RANK) {
    return fail(RN_INVALID_VALUE, "%s: %s.rank is %" PRId32 "; it must be from 1 to %d", a.function, a.rule.name,
                a.view.rank, RN_MAX_RANK);
  }
  for (int k = 0; k < a.view.rank; ++k) {
    if (a.view.shape[k] < 0) {
      return fail(RN_INVALID_VALUE, "%s: %s.shape[%d] is %" PRId64 "; it must be 0 or more", a.function, a.rule.name, k,
                  a.view.shape[k]);
    }
  }
  return RN_OK;
}

rn_status check_strides(const Argument& a) {
  for (int k = 0; k < a.view.rank; ++k) {
    if (a.view.shape[k] == 1) continue;
    const int64_t stride = a.view.strides[k];
    if (a.has_rows() && k == a.last() && stride != 1) {
      return fail(RN_INVALID_VALUE, "%s: %s.strides[%d] is %" PRId64 "; it must be 1 on the %s axis", a.function,
                  a.rule.name, k, stride, a.last_name());
    }
    if (a.rule.output && stride == 0 && a.view.shape[k] > 1) {
      return fail(RN_INVALID_VALUE,
                  "%s: %s.strides[%d] is 0; it must be another number in an output, here on an axis "
                  "of size %" PRId64,
                  a.function, a.rule.name, k, a.view.shape[k]);
    }
  }
  return RN_OK;
}

// The view's bytes lie within kMaxSpan and within the address space.
rn_status check_span(const Argument& a) {
  uint64_t below = 0;
  uint64_t above = static_cast<uint64_t>(a.element()) - 1;
  for (int k = 0; k < a.view.rank; ++k) {
    if (a.view.shape[k] <= 1) continue;
    int64_t bytes = 0;
    const bool overflows = __builtin_mul_overflow(a.view.shape[k] - 1, a.view.strides[k], &bytes) ||
                           __builtin_mul_overflow(bytes, a.element(), &bytes) || bytes > kMaxSpan || bytes < -kMaxSpan;
    if (!overflows) (bytes < 0 ? below : above) += static_cast<uint64_t>(bytes < 0 ? -bytes : bytes);
    if (overflows || below + above >= static_cast<uint64_t>(kMaxSpan)) {
      return fail(RN_INVALID_VALUE,
                  "%s: %s.shape[%d] and %s.strides[%d] are %" PRId64 " and %" PRId64
                  "; the tensor must span less than 2^60 bytes",
                  a.function, a.rule.name, k, a.rule.name, k, a.view.shape[k], a.view.strides[k]);
    }
  }
  const auto address = reinterpret_cast<uintptr_t>(a.view.data);
  if (below > address || above > UINTPTR_MAX - address) {
    return fail(RN_INVALID_VALUE,
                "%s: %s.data is %p; its elements must lie within the address space, from %" PRIu64
                " bytes before to %" PRIu64 " bytes after it",
                a.function, a.rule.name, a.view.data, below, above);
  }
  return RN_OK;
}

rn_status check_data(const Argument& a) {
  for (int k = 0; k < a.view.rank; ++k) {
    if (a.view.shape[k] == 0) return RN_OK;  // no element: any pointer, any strides
  }
  if (a.view.data == nullptr) {
    return fail(RN_INVALID_VALUE, "%s: %s.data is NULL; it must point to the elements", a.function, a.rule.name);
  }
  if ((reinterpret_cast<uintptr_t>(a.view.data) & static_cast<uintptr_t>(a.element() - 1)) != 0) {
    return fail(RN_INVALID_VALUE, "%s: %s.data is %p; it must be a multiple of %" PRId64 ", the size of %s", a.function,
                a.rule.name, a.view.data, a.element(), rn_type_name(a.view.type));
  }
  const rn_status status = check_strides(a);
  return status != RN_OK ? status : check_span(a);
}

rn_status wrong_rank(const Argument& a, int rank, const char* why, const char* of) {
  return fail(RN_INVALID_VALUE, "%s: %s.rank is %" PRId32 "; it must be %d, %s%s", a.function, a.rule.name, a.view.rank,
              rank, why, of);
}

rn_status wrong_size(const Argument& a, int axis, const char* rule, int64_t size, int x_axis) {
  return fail(RN_INVALID_VALUE, "%s: %s.shape[%d] is %" PRId64 "; it must be %s%" PRId64 ", the size of %s.shape[%d]",
              a.function, a.rule.name, axis, a.view.shape[axis], rule, size, a.rule.of, x_axis);
}

rn_status check_shape(const Argument& a, const rn_view& x) {
  switch (a.rule.form) {
    case Form::kX:
      return RN_OK;
    case Form::kSame:
      if (a.view.rank != x.rank) return wrong_rank(a, x.rank, "the rank of ", a.rule.of);
      for (int k = 0; k < x.rank; ++k) {
        if (a.view.shape[k] != x.shape[k]) return wrong_size(a, k, "", x.shape[k], k);
      }
      return RN_OK;
    case Form::kStatistic:
      if (x.rank == 1) {
        if (a.view.rank != 1) return wrong_rank(a, 1, "as x is one row", "");
        if (a.view.shape[0] == 1) return RN_OK;
        return fail(RN_INVALID_VALUE, "%s: %s.shape[0] is %" PRId64 "; it must be 1, as x is one row", a.function,
                    a.rule.name, a.view.shape[0]);
      }
      if (a.view.rank != x.rank - 1) return wrong_rank(a, x.rank - 1, "one less than the rank of ", a.rule.of);
      for (int k = 0; k < x.rank - 1; ++k) {
        if (a.view.shape[k] != x.shape[k]) return wrong_size(a, k, "", x.shape[k], k);
      }
      return RN_OK;
    case Form::kBroadcast:
      if (a.view.rank > x.rank) {
        return fail(RN_INVALID_VALUE, "%s: %s.rank is %" PRId32 "; it must be at most %" PRId32 ", the rank of %s",
                    a.function, a.rule.name, a.view.rank, x.rank, a.rule.of);
      }
      for (int k = 0; k < a.view.rank; ++k) {
        const int x_axis = k + x.rank - a.view.rank;
        if (a.view.shape[k] == x.shape[x_axis]) continue;
        if (k == a.last()) return wrong_size(a, k, "", x.shape[x_axis], x_axis);
        if (a.view.shape[k] != 1) return wrong_size(a, k, "1 or ", x.shape[x_axis], x_axis);
      }
      return RN_OK;
    case Form::kVector:
      if (a.view.rank != 1) return wrong_rank(a, 1, "a vector that all rows share", "");
      return a.view.shape[0] == x.shape[x.rank - 1] ? RN_OK : wrong_size(a, 0, "", x.shape[x.rank - 1], x.rank - 1);
    case Form::kChannels:
      if (a.view.rank != 1) return wrong_rank(a, 1, "one element for each channel", "");
      return a.view.shape[0] == x.shape[1] ? RN_OK : wrong_size(a, 0, "", x.shape[1], 1);
    case Form::kOwnCols:
      if (a.view.rank != x.rank) return wrong_rank(a, x.rank, "the rank of ", a.rule.of);
      for (int k = 0; k < x.rank - 1; ++k) {
        if (a.view.shape[k] != x.shape[k]) return wrong_size(a, k, "", x.shape[k], k);
      }
      if (a.view.shape[a.last()] == a.rule.cols) return RN_OK;
      return fail(RN_INVALID_VALUE, "%s: %s.shape[%d] is %" PRId64 "; it must be %" PRId64, a.function, a.rule.name,
                  static_cast<int>(a.last()), a.view.shape[a.last()], a.rule.cols);
  }
  return RN_OK;
}

rn_status check_view(const Argument& a, const rn_view* x) {
  rn_status status = check_type(a, x);
  if (status == RN_OK) status = check_rank_and_sizes(a);
  if (status == RN_OK && x != nullptr) status = check_shape(a, *x);
  return status != RN_OK ? status : check_data(a);
}

// The operand's strides along x's leading axes; 0 where it has no such axis or only one index on it.
void set_operand(const Argument& a, int leading, Operand* operand) {
  operand->base = static_cast<char*>(a.view.data);
  operand->type = a.view.type;
  const int own = a.has_columns() ? a.view.rank - 1 : leading;  // own leading axes, right-aligned
  for (int k = 0; k < leading; ++k) {
    const int axis = k - (leading - own);
    operand->strides[k] = axis < 0 || a.view.shape[axis] <= 1 ? 0 : a.view.strides[axis] * a.element();
  }
}

}  // namespace

rn_status take_x(const char* function, const OperandRule& rule, const rn_view& view, RowShape* shape,
                 Operand* operand) {
  const Argument a{function, rule, view};
  rn_status status = check_type(a, nullptr);
  if (status == RN_OK) status = check_rank_and_sizes(a);
  if (status != RN_OK) return status;
  const int64_t cols = view.shape[a.last()];
  if (cols < 1 || cols > kMaxCols) {
    return fail(RN_INVALID_VALUE, "%s: %s.shape[%d] is %" PRId64 "; it must be from 1 to 2^31 on the %s axis", function,
                rule.name, static_cast<int>(a.last()), cols, a.last_name());
  }
  shape->cols = cols;
  shape->leading = view.rank - 1;
  shape->rows = 1;
  for (int k = 0; k < shape->leading; ++k) {
    shape->shape[k] = view.shape[k];
    if (view.shape[k] == 0) shape->rows = 0;  // whatever the other sizes are
  }
  for (int k = 0; k < shape->leading && shape->rows != 0; ++k) {
    if (__builtin_mul_overflow(shape->rows, view.shape[k], &shape->rows) || shape->rows > kMaxRows) {
      return fail(RN_INVALID_VALUE,
                  "%s: %s.shape[%d] is %" PRId64 "; the product of %s's leading sizes must be at most 2^40 rows",
                  function, rule.name, k, view.shape[k], rule.name);
    }
  }
  status = check_data(a);
  if (status == RN_OK && shape->rows != 0) set_operand(a, shape->leading, operand);
  return status;
}

rn_status take_operand(const char* function, const OperandRule& rule, const rn_view& view, const rn_view& x,
                       const RowShape& shape, Operand* operand) {
  const Argument a{function, rule, view};
  const rn_status status = check_view(a, &x);
  // A vector is there whether or not there are rows.
  const bool used = shape.rows != 0 || rule.form == Form::kVector || rule.form == Form::kChannels;
  if (status == RN_OK && used) set_operand(a, shape.leading, operand);
  return status;
}

void collapse(RowShape* shape, std::span<Operand* const> operands) {
  const Operand& first = *operands.front();
  int axes = 0;
  for (int k = 0; k < shape->leading; ++k) {
    if (shape->shape[k] == 1) continue;
    shape->shape[axes] = shape->shape[k];
    for (Operand* operand : operands) operand->strides[axes] = operand->strides[k];
    // Insertion: rows follow each other in memory order of out, also in a permuted view.
    for (int i = axes++; i > 0 && std::abs(first.strides[i]) > std::abs(first.strides[i - 1]); --i) {
      std::swap(shape->shape[i], shape->shape[i - 1]);
      for (Operand* operand : operands) std::swap(operand->strides[i], operand->strides[i - 1]);
    }
  }
  int kept = 0;  // axes 0 .. kept-1 are done; the last of them may still take its successor in
  for (int k = 0; k < axes; ++k) {
    bool merges = kept > 0;
    for (const Operand* operand : operands) {
      int64_t stride = 0;
      merges = merges && !__builtin_mul_overflow(operand->strides[k], shape->shape[k], &stride) &&
               operand->strides[kept - 1] == stride;
    }
    const int target = merges ? kept - 1 : kept++;
    shape->shape[target] = merges ? shape->shape[target] * shape->shape[k] : shape->shape[k];
    for (Operand* operand : operands) operand->strides[target] = operand->strides[k];
  }
  shape->leading = kept;
}

}  // namespace rmsnorm
