// The C interface: messages, types and views. The functions about targets are in src/cpu/table.cc.
#include <algorithm>

#include "core/status.h"
#include "core/views.h"
#include "rmsnorm/rmsnorm.h"

extern "C" {

const char* rn_last_error(void) { return rmsnorm::last_error(); }

const char* rn_version(void) { return RMSNORM_VERSION; }

const char* rn_type_name(rn_type type) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "f64", "i8", "f8e4m3", "f8e5m2", "i32", "i64"};
  const int number = rmsnorm::as_int(type);
  return number >= 0 && number < rmsnorm::kTypes ? kNames[number] : nullptr;
}

size_t rn_type_size(rn_type type) { return static_cast<size_t>(rmsnorm::type_size(rmsnorm::as_int(type))); }

rn_view rn_matrix(void* data, rn_type type, int64_t rows, int64_t cols) {
  const int64_t shape[] = {rows, cols};
  return rn_tensor(data, type, 2, shape);
}

rn_view rn_vector(void* data, rn_type type, int64_t cols) { return rn_tensor(data, type, 1, &cols); }

rn_view rn_tensor(void* data, rn_type type, int32_t rank, const int64_t* shape) {
  rn_view view = {};
  view.data = data;
  view.type = type;
  view.rank = rank;
  if (rank < 1 || rank > RN_MAX_RANK) return view;
  int64_t stride = 1;
  for (int32_t axis = rank - 1; axis >= 0; --axis) {
    view.shape[axis] = shape[axis];
    view.strides[axis] = stride;
    // Too large for any tensor: the operations refuse the shape or this stride, whichever they look at first.
    if (__builtin_mul_overflow(stride, std::max<int64_t>(shape[axis], 1), &stride)) stride = INT64_MAX;
  }
  return view;
}

}  // extern "C"
