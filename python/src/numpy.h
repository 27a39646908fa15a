// What this package asks of NumPy, through Python alone: no NumPy headers, so one build serves every version.
#ifndef RMSNORM_PYTHON_NUMPY_H_
#define RMSNORM_PYTHON_NUMPY_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>

#include "rmsnorm/core.h"

namespace rmsnorm::python {

namespace nb = nanobind;

// What numpy.ndarray.__array_struct__ points to (NumPy's array interface, version 3).
struct ArrayInterface {
  int two;
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  void* data;
  PyObject* descr;
};
inline constexpr int kNativeByteOrder = 0x200;
inline constexpr int kWriteable = 0x400;

bool is_ndarray(nb::handle object);

// The type of an array's elements; -1 where the library has none. The array is asked for its dtype only if kind and size
// do not tell.
int element_type(const ArrayInterface& interface, nb::handle array);

// numpy.dtype of a type. bf16 and the 8-bit floats come from ml_dtypes; without it: ImportError.
nb::handle dtype_of(rn_type type);

// numpy.empty(shape, dtype)
nb::object empty(std::span<const std::int64_t> shape, nb::handle dtype);

}  // namespace rmsnorm::python

#endif  // RMSNORM_PYTHON_NUMPY_H_
