// rmsnorm._rmsnorm: the library's C++ interface for NumPy arrays and DLPack tensors. No arithmetic here: arguments are
// turned into views, outputs made, messages handed on.
#include "operations.h"
#include "rmsnorm/core.hpp"

namespace rmsnorm::python {
namespace {

// The library's message, as the exception that Python uses for the kind of mistake.
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    PyObject* const kind = error.code() == RN_INVALID_VALUE  ? PyExc_ValueError
                           : error.code() == RN_INVALID_TYPE ? PyExc_TypeError
                                                             : PyExc_RuntimeError;
    PyErr_SetString(kind, error.what());
  }
}

}  // namespace
}  // namespace rmsnorm::python

NB_MODULE(_rmsnorm, module) {
  using namespace rmsnorm::python;
  module.doc() = "The compiled part of rmsnorm. Import rmsnorm, which has all of it.";
  nanobind::register_exception_translator(translate);
  add_core(module);
  add_norms(module);
  add_add_norms(module);
  add_backward(module);
  add_add_backward(module);
  add_gated_rms_norm(module);
  add_qk_norm_rope(module);
  add_quantize(module);
  add_channels(module);
  add_sharded(module);
  add_sharded_backward(module);
}
