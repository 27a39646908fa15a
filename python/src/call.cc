#include "call.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "numpy.h"

namespace rmsnorm::python {
namespace {

std::string name_of_type(nb::handle object) { return nb::type_name(object.type()).c_str(); }

[[noreturn]] void refuse(PyObject* error, const char* function, const char* name, const std::string& value,
                         const char* rule) {
  PyErr_Format(error, "%s: %s is %s; it must be %s", function, name, value.c_str(), rule);
  throw nb::python_error();
}

constexpr const char* kElements = "f32, f16, bf16, f64, i8, f8e4m3, f8e5m2, i32 or i64 in native byte order";

// The type of a DLPack tensor's elements; -1 where the library has none.
int element_type(nb::dlpack::dtype dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1) return -1;
  const struct {
    Code code;
    int bits;
    rn_type type;
  } types[] = {{Code::Float, 32, RN_F32},         {Code::Float, 16, RN_F16}, {Code::Bfloat, 16, RN_BF16},
               {Code::Float, 64, RN_F64},         {Code::Int, 8, RN_I8},     {Code::Float8_E4M3FN, 8, RN_F8E4M3},
               {Code::Float8_E5M2, 8, RN_F8E5M2}, {Code::Int, 32, RN_I32},   {Code::Int, 64, RN_I64}};
  for (const auto& each : types) {
    if (dtype.code == static_cast<std::uint8_t>(each.code) && dtype.bits == each.bits) return each.type;
  }
  return -1;
}

std::int64_t bytes_of(const rn_view& view) {
  std::int64_t bytes = static_cast<std::int64_t>(rn_type_size(view.type));
  for (int axis = 0; axis < view.rank && axis < RN_MAX_RANK; ++axis) bytes *= view.shape[axis];
  return bytes;
}

}  // namespace

View Call::view_of_ndarray(const char* name, nb::handle array, bool writable) {
  const nb::object capsule = array.attr("__array_struct__");
  const auto* interface = static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (interface == nullptr) throw nb::python_error();
  const int type = element_type(*interface, array);
  if (type < 0) {
    refuse(PyExc_TypeError, function_, name, nb::str(nb::object(array.attr("dtype"))).c_str(), kElements);
  }
  if (writable && (interface->flags & kWriteable) == 0) {
    refuse(PyExc_ValueError, function_, name, "read-only", "an array that may be written to");
  }
  rn_view view;
  view.data = interface->data;
  view.type = static_cast<rn_type>(type);
  view.rank = interface->nd;  // the library refuses those that it does not hold
  for (int axis = 0; axis < interface->nd && axis < RN_MAX_RANK; ++axis) {
    view.shape[axis] = interface->shape[axis];
    view.strides[axis] = interface->strides[axis] / interface->itemsize;
    if (interface->shape[axis] > 1 && interface->strides[axis] % interface->itemsize != 0) {
      refuse(PyExc_ValueError, function_, name, "an array with strides between elements",
             "an array whose strides are multiples of its elements");
    }
  }
  return View(view);
}

View Call::view_of_dlpack(const char* name, nb::handle object, bool writable) {
  nb::ndarray<nb::ro> tensor;
  if (writable) {
    nb::ndarray<> output;
    if (nb::try_cast(object, output)) tensor = nb::ndarray<nb::ro>(output);
  }
  if (!tensor.is_valid()) {
    if (!nb::try_cast(object, tensor)) {
      refuse(PyExc_TypeError, function_, name, "of type " + name_of_type(object),
             "a NumPy array or an object that gives its memory away through __dlpack__ or the buffer protocol");
    }
    if (writable) refuse(PyExc_ValueError, function_, name, "read-only", "an array that may be written to");
  }
  if (tensor.device_type() != nb::device::cpu::value) {
    refuse(PyExc_ValueError, function_, name, "on device type " + std::to_string(tensor.device_type()),
           "in the memory of the CPU");
  }
  const int type = element_type(tensor.dtype());
  if (type < 0) refuse(PyExc_TypeError, function_, name, "of another element type", kElements);
  rn_view view;
  view.data = const_cast<void*>(tensor.data());  // inputs are never written to
  view.type = static_cast<rn_type>(type);
  view.rank = static_cast<std::int32_t>(tensor.ndim());
  for (int axis = 0; axis < view.rank && axis < RN_MAX_RANK; ++axis) {
    view.shape[axis] = static_cast<std::int64_t>(tensor.shape(static_cast<std::size_t>(axis)));
    view.strides[axis] = tensor.stride(static_cast<std::size_t>(axis));
  }
  dlpack_kept_.push_back(std::move(tensor));
  return View(view);
}

View Call::view(const char* name, nb::handle object, bool writable) {
  const View view =
      is_ndarray(object) ? view_of_ndarray(name, object, writable) : view_of_dlpack(name, object, writable);
  bytes_ += bytes_of(*view.get());
  return view;
}

View Call::dense(const char* name, const View& view) const {
  const rn_view& v = *view.get();
  if (v.type != RN_F64) refuse(PyExc_TypeError, function_, name, rn_type_name(v.type), "f64");
  std::int64_t stride = 1;
  for (int axis = v.rank - 1; axis >= 0; --axis) {
    if (v.shape[axis] != 1 && v.strides[axis] != stride) {
      refuse(PyExc_ValueError, function_, name, "not dense", "dense, in row-major order");
    }
    stride *= v.shape[axis];
  }
  return view;
}

View Call::dense(const char* name, const View& view, std::span<const std::int64_t> shape) const {
  const auto own = shape_of(view);
  if (!std::equal(own.begin(), own.end(), shape.begin(), shape.end())) {
    refuse(PyExc_ValueError, function_, name, "of another shape", "of the shape of one rank's sums");
  }
  return dense(name, view);
}

View Call::made(nb::handle dtype, std::span<const std::int64_t> shape) {
  nb::object array = empty(shape, dtype);
  const View made = view("result", array, true);
  add_result(std::move(array));
  return made;
}

View Call::output(const char* name, Output argument, rn_type type, std::span<const std::int64_t> shape) {
  if (argument.object.is_none()) return made(dtype_of(type), shape);
  const View given = view(name, argument.object, true);
  add_result(nb::borrow(argument.object));
  return given;
}

View Call::output(const char* name, Output argument, nb::handle dtype, std::span<const std::int64_t> shape) {
  return argument.object.is_none() ? made(dtype, shape) : output(name, argument, RN_F32, shape);
}

View Call::output(const char* name, OptionalOutput argument, rn_type type, std::span<const std::int64_t> shape) {
  if (argument.object.is_none() || argument.object.ptr() == Py_False) return View();
  return output(name, Output{argument.object.ptr() == Py_True ? nb::handle(Py_None) : argument.object}, type, shape);
}

void Call::check_accumulate(bool accumulate, const char* name, OptionalOutput argument) const {
  if (accumulate && argument.object.ptr() == Py_True) {
    refuse(PyExc_ValueError, function_, name, "True", "an array where accumulate is True");
  }
}

int Call::choice_index(const char* name, nb::handle object, std::span<const char* const> names,
                       const char* rule) const {
  const char* text = PyUnicode_Check(object.ptr()) ? PyUnicode_AsUTF8AndSize(object.ptr(), nullptr) : nullptr;
  for (std::size_t i = 0; text != nullptr && i < names.size(); ++i) {
    if (std::strcmp(text, names[i]) == 0) return static_cast<int>(i);
  }
  PyErr_Clear();
  refuse(text == nullptr ? PyExc_TypeError : PyExc_ValueError, function_, name, nb::repr(object).c_str(), rule);
}

Result Call::result() {
  if (results_ == 1) return {std::move(first_)};
  const nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(results_)));
  PyTuple_SetItem(tuple.ptr(), 0, first_.release().ptr());
  for (std::size_t i = 0; i < others_.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i + 1), others_[i].release().ptr());
  }
  return {tuple};
}

std::span<const std::int64_t> shape_of(const View& view) {
  const rn_view& v = *view.get();
  return {v.shape, static_cast<std::size_t>(v.rank < 0 || v.rank > RN_MAX_RANK ? 0 : v.rank)};
}

std::span<const std::int64_t> rows_of(const View& view) {
  static constexpr std::int64_t kOneRow = 1;
  const auto shape = shape_of(view);
  return shape.size() > 1 ? shape.first(shape.size() - 1) : std::span<const std::int64_t>(&kOneRow, 1);
}

std::span<const std::int64_t> columns_of(const View& view) {
  const auto shape = shape_of(view);
  return shape.empty() ? shape : shape.last(1);
}

rn_type statistic_type(const View& x) { return x.get()->type == RN_F64 ? RN_F64 : RN_F32; }

rn_type gradient_type(const View& parameter, const View& x) {
  return parameter.get() != nullptr ? parameter.get()->type : statistic_type(x);
}

}  // namespace rmsnorm::python
