// Each file of operations adds its functions to the module.
#ifndef RMSNORM_PYTHON_OPERATIONS_H_
#define RMSNORM_PYTHON_OPERATIONS_H_

#include <nanobind/nanobind.h>

namespace rmsnorm::python {

void add_core(nanobind::module_& module);
void add_norms(nanobind::module_& module);
void add_add_norms(nanobind::module_& module);
void add_backward(nanobind::module_& module);
void add_add_backward(nanobind::module_& module);
void add_gated_rms_norm(nanobind::module_& module);
void add_qk_norm_rope(nanobind::module_& module);
void add_quantize(nanobind::module_& module);
void add_channels(nanobind::module_& module);
void add_sharded(nanobind::module_& module);
void add_sharded_backward(nanobind::module_& module);

}  // namespace rmsnorm::python

#endif  // RMSNORM_PYTHON_OPERATIONS_H_
