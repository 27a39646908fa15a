// One call from Python: arguments become views, outputs that were not given are made, results are gathered.
#ifndef RMSNORM_PYTHON_CALL_H_
#define RMSNORM_PYTHON_CALL_H_

#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <vector>

#include "arguments.h"

namespace rmsnorm::python {

// Bytes of operands above which a call lets other Python threads run: below, releasing and taking the lock again costs
// more than they would gain.
inline constexpr std::int64_t kReleaseBytes = 64 << 10;

class Call {
 public:
  // function: its name in Python, for messages.
  Call(const char* function, int threads) : function_(function), execution_{.threads = threads} {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  View input(const char* name, Array argument) { return view(name, argument.object, false); }
  View input(const char* name, OptionalArray argument) {
    return argument.object.is_none() ? View() : view(name, argument.object, false);
  }

  // The outputs, in the order in which they are returned. One that is made is a dense NumPy array.
  View output(const char* name, Output argument, rn_type type, std::span<const std::int64_t> shape);
  View output(const char* name, OptionalOutput argument, rn_type type, std::span<const std::int64_t> shape);
  // Made with a type that Python names: anything that numpy.dtype takes.
  View output(const char* name, Output argument, nb::handle dtype, std::span<const std::int64_t> shape);

  // Dense float64, for functions that take an address.
  View dense_f64(const char* name, Array argument) { return dense(name, input(name, argument)); }
  View dense_f64_output(const char* name, Output argument, std::span<const std::int64_t> shape) {
    return dense(name, output(name, argument, RN_F64, shape), shape);
  }

  template <class E>
  E choice(Choice<E> argument) const {
    using S = Spelling<E>;
    return static_cast<E>(choice_index(S::kArgument, argument.object, S::kNames, S::kRule));
  }

  const Execution& execution() const { return execution_; }

  // Refuses accumulating into an output that is made here.
  void check_accumulate(bool accumulate, const char* name, OptionalOutput argument) const;

  // Runs it, without the lock if there is much to do, and returns the outputs.
  template <class Operation>
  Result run(Operation&& operation) {
    if (bytes_ >= kReleaseBytes) {
      const nb::gil_scoped_release release;
      operation();
    } else {
      operation();
    }
    return result();
  }

 private:
  View view(const char* name, nb::handle object, bool writable);
  View view_of_ndarray(const char* name, nb::handle array, bool writable);
  View view_of_dlpack(const char* name, nb::handle object, bool writable);
  View dense(const char* name, const View& view) const;
  View dense(const char* name, const View& view, std::span<const std::int64_t> shape) const;
  View made(nb::handle dtype, std::span<const std::int64_t> shape);
  int choice_index(const char* name, nb::handle object, std::span<const char* const> names, const char* rule) const;
  Result result();

  const char* function_;
  Execution execution_;
  std::int64_t bytes_ = 0;
  std::int64_t results_ = 0;
  nb::object first_;                              // of the results: most calls have one
  std::vector<nb::object> others_;                // and those behind it
  std::vector<nb::ndarray<nb::ro>> dlpack_kept_;  // memory that producers keep while their capsules live

  void add_result(nb::object object) {
    if (results_++ == 0) {
      first_ = std::move(object);
    } else {
      others_.push_back(std::move(object));
    }
  }
};

// The shape of a view; that of its rows, as statistics have it; that of its last axis, as gradients of parameters have.
std::span<const std::int64_t> shape_of(const View& view);
std::span<const std::int64_t> rows_of(const View& view);
std::span<const std::int64_t> columns_of(const View& view);

// The type of statistics beside x.
rn_type statistic_type(const View& x);

// The type of a parameter's gradient where it is made: that of the parameter; without one f32 (f64 beside f64).
rn_type gradient_type(const View& parameter, const View& x);

}  // namespace rmsnorm::python

#endif  // RMSNORM_PYTHON_CALL_H_
