// Versions, targets, small helpers.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

struct Target {
  std::string name;
  std::string description;
  bool supported;
};

std::vector<Target> targets() {
  std::vector<Target> all;
  for (std::int32_t i = 0; i < rn_target_count(); ++i) {
    all.push_back({rn_target_name(i), rn_target_description(i), rn_target_supported(i) != 0});
  }
  return all;
}

void use_target(const std::string& name) { detail::require(rn_use_target(name.c_str())); }

std::int64_t partial_columns(std::int64_t cols, double fraction) {
  const std::int64_t columns = rn_partial_columns(cols, fraction);
  if (columns < 0) {
    PyErr_SetString(PyExc_ValueError,
                    "partial_columns: cols and fraction must be 1 or more, and above 0 and at most 1");
    throw nb::python_error();
  }
  return columns;
}

}  // namespace

void add_core(nb::module_& module) {
  nb::class_<Target>(module, "Target", "An instruction set that this build has kernels for.")
      .def_ro("name", &Target::name, "For instance 'avx2'.")
      .def_ro("description", &Target::description, "What it needs.")
      .def_ro("supported", &Target::supported, "Whether this machine can run it.")
      .def("__repr__", [](const Target& t) {
        return "Target(name='" + t.name + "', supported=" + (t.supported ? "True" : "False") + ")";
      });
  module.def("version", rn_version, "The version of the library, for instance '0.1.0'.");
  module.def("target", rn_target, "The name of the target in use.");
  module.def("target_reason", rn_target_reason,
             "Why it is in use: 'best supported', 'RMSNORM_TARGET' or 'rn_use_target'.");
  module.def("targets", targets, "The targets of this build, best first. All give the same bits.");
  module.def("use_target", use_target, nb::arg("name"),
             "Uses the named target from now on, in all threads. RuntimeError where this CPU lacks it.");
  module.def("partial_columns", partial_columns, nb::arg("cols"), nb::arg("fraction"),
             "The number of columns for `partial` that stands for a fraction of cols: its floor, but at least 1.");
}

}  // namespace rmsnorm::python
