#include "numpy.h"

namespace rmsnorm::python {
namespace {

constexpr int kTypes = RN_I64 + 1;

// Made on first use and never destroyed: at exit the interpreter is gone before static objects.
struct Numpy {
  nb::object ndarray;
  nb::object empty;
  nb::object dtype;
  nb::object dtypes[kTypes];

  Numpy() {
    const nb::module_ numpy = nb::module_::import_("numpy");
    ndarray = numpy.attr("ndarray");
    empty = numpy.attr("empty");
    dtype = numpy.attr("dtype");
  }
};

Numpy& numpy() {
  static Numpy& value = *new Numpy;
  return value;
}

struct Name {
  const char* module;
  const char* name;
};
constexpr Name kNames[kTypes] = {{"numpy", "float32"},         {"numpy", "float16"}, {"ml_dtypes", "bfloat16"},
                                 {"numpy", "float64"},         {"numpy", "int8"},    {"ml_dtypes", "float8_e4m3fn"},
                                 {"ml_dtypes", "float8_e5m2"}, {"numpy", "int32"},   {"numpy", "int64"}};

}  // namespace

bool is_ndarray(nb::handle object) {
  PyObject* const ndarray = numpy().ndarray.ptr();
  if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) == ndarray) return true;
  return PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(ndarray)) != 0;
}

int element_type(const ArrayInterface& interface, nb::handle array) {
  if ((interface.flags & kNativeByteOrder) == 0) return -1;
  switch (interface.typekind) {
    case 'f':
      if (interface.itemsize == 4) return RN_F32;
      if (interface.itemsize == 2) return RN_F16;
      if (interface.itemsize == 8) return RN_F64;
      break;
    case 'i':
      if (interface.itemsize == 1) return RN_I8;
      if (interface.itemsize == 4) return RN_I32;
      if (interface.itemsize == 8) return RN_I64;
      return -1;
    case 'V':
      break;
    default:
      return -1;
  }
  // The types of ml_dtypes: any array of one means that the module is loaded.
  if (!nb::cast<nb::dict>(nb::module_::import_("sys").attr("modules")).contains("ml_dtypes")) return -1;
  const nb::object dtype = array.attr("dtype");
  for (const rn_type type : {RN_BF16, RN_F8E4M3, RN_F8E5M2}) {
    if (dtype.is(dtype_of(type)) || dtype.equal(dtype_of(type))) return type;
  }
  return -1;
}

nb::handle dtype_of(rn_type type) {
  nb::object& dtype = numpy().dtypes[type];
  if (!dtype.is_valid()) {
    const Name& name = kNames[type];
    dtype = numpy().dtype(nb::module_::import_(name.module).attr(name.name));
  }
  return dtype;
}

nb::object empty(std::span<const std::int64_t> shape, nb::handle dtype) {
  const nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  }
  return numpy().empty(tuple, dtype);
}

}  // namespace rmsnorm::python
