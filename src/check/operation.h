// Operations as data: what operands each has, which settings, how it is called, and what must come out. Tests, the
// command line and the benchmark work on any operation through this, so that a new one is one file here.
// (The forward norms came first and have their own: case.h.)
#ifndef RMSNORM_CHECK_OPERATION_H_
#define RMSNORM_CHECK_OPERATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "check/finding.h"
#include "check/operands.h"

namespace rmsnorm::check {

using Shape = std::vector<std::int64_t>;

// "weight_offset" -> "--weight-offset"
std::string option_name(std::string_view name);

// One option of an operation, as the command line spells it: "epsilon", "rounding".
struct Setting {
  std::string_view name;
  std::string_view help;
  double value;                                 // the default; of a choice, the index
  std::span<const std::string_view> choices{};  // empty: a number
  bool whole = false;                           // the number must be a whole one
};

enum class Role { kInput, kOutput };

// One operand of a request.
struct Slot {
  std::string_view name;  // as the header spells the argument
  Role role;
  rn_type type;
  Shape shape;
  reference::Values values = reference::Values::kNormal;  // of an input
  std::string_view alias{};                               // of an output: the input whose place it may take
  bool row_padding = true;                                // its rows may be padded in memory; a vector has none
  bool holds_values = false;                              // of an output: what it holds before the call counts
};

// Which operation, on what. Types and presence of operands are by name; what is not named follows from x.
struct Request {
  Shape shape;  // of x
  rn_type x = RN_F32;
  std::map<std::string, rn_type, std::less<>> types;  // of operands that do not have x's type
  std::map<std::string, bool, std::less<>> present;   // of operands that may be absent
  std::map<std::string, double, std::less<>> settings;

  reference::Values values = reference::Values::kNormal;  // of x and what is shaped like it
  std::uint64_t seed = 1;
  std::int64_t padding = 0;  // elements behind each row of every operand
  std::int64_t offset = 0;   // elements from a 64-byte boundary to the start of every operand
  bool in_place = false;     // outputs take the place of their inputs
  std::int32_t threads = 1;
  std::string target;  // empty: the one in use

  rn_type type_of(std::string_view name, rn_type otherwise) const;
  bool has(std::string_view name, bool otherwise) const;
};

// An operand in memory.
struct Tensor {
  Slot slot;
  Matrix matrix;              // the axes before the last as rows
  Matrix before;              // a copy from before the call, where that counts
  std::int64_t rows() const;  // the axes before the last as one
  std::int64_t cols() const { return slot.shape.back(); }
  rn_view view() const;
};

// The operands of one request, by name; in place, an output has no memory and its name gives its input.
// Where `elsewhere` names an operand it needs no matrix; it is dense then.
class Tensors {
 public:
  std::vector<Tensor> all;

  bool has(std::string_view name) const;
  const Tensor& operator[](std::string_view name) const;
  // What calls take: null where absent.
  const rn_view* view(std::string_view name) const;
  // Row r of an operand, widened; of an input as it was before the call.
  std::vector<double> row(std::string_view name, std::int64_t r) const;

  // Memory that the call needs beside its operands.
  rn_scratch scratch() const;

  std::vector<double> scratch_memory;
  std::map<std::string, std::string, std::less<>> aliases;  // output -> input
  std::map<std::string, char*, std::less<>> elsewhere;      // where calls find an operand instead, laid out the same

 private:
  mutable std::map<std::string, rn_view, std::less<>> views_;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::string_view name() const = 0;
  virtual std::string_view summary() const = 0;  // one line of help
  virtual std::span<const Setting> settings() const = 0;

  // The operand whose shape is Request::shape and whose type is Request::x.
  virtual std::string_view x_name() const { return "x"; }
  // Operands in the order of the C function. Throws std::invalid_argument for a shape of x that it cannot take.
  virtual std::vector<Slot> slots(const Request& request) const = 0;
  // Operands that may be absent: name and whether they are there if nothing is said.
  virtual std::vector<std::pair<std::string_view, bool>> optional() const = 0;
  // The types that an operand may have beside x, the first one being the default; empty for a name it does not have.
  virtual std::vector<rn_type> types(std::string_view name, rn_type x) const = 0;

  // Bytes that the call takes as scratch.
  virtual std::int64_t scratch_bytes(const Request&) const { return 0; }

  // Inputs that follow from others, once these are filled.
  virtual void prepare(const Request&, Tensors&) const {}

  virtual rn_status call(const Request& request, const Tensors& tensors, const rn_execution& execution) const = 0;
  virtual Finding judge(const Request& request, const Tensors& tensors) const = 0;

  // A shape of x with so many rows and columns, or as near as the operation has it.
  virtual Shape shape_for(std::int64_t rows, std::int64_t cols) const { return {rows, cols}; }
  // Variants worth testing: settings and presences that lead to different code.
  virtual std::vector<Request> variants(rn_type x) const = 0;
};

// All of them, in the order of the documents.
std::span<const Operation* const> operations();
const Operation* operation_named(std::string_view name);  // null if there is none

// The types of rows, parameters and their gradients that tests try beside an x: its own first.
std::vector<rn_type> types_beside(rn_type x);

// rn_backward_scratch_bytes for an x of that shape.
std::int64_t backward_scratch_bytes(const Shape& shape);

double setting(const Operation& op, const Request& request, std::string_view name);

// Memory for a request, inputs filled; the same values whatever padding, offset and in_place are.
Tensors make_tensors(const Operation& op, const Request& request);

// Scratch for a call, poisoned: what it holds must not matter.
void give_scratch(const Operation& op, const Request& request, Tensors& tensors);

// Puts back what the operands and the scratch held before the call.
void restore(Tensors& tensors);

// Calls with the request's target and threads, or with `execution`.
rn_status call(const Operation& op, const Request& request, const Tensors& tensors,
               const rn_execution* execution = nullptr);

// "" or what was written that must not be: an input, or memory outside the operands.
std::string damage(const Request& request, const Tensors& tensors);

// Of the results, in order.
std::uint64_t hash_of_outputs(const Tensors& tensors);

// "rmsnorm check rms_norm_backward x=3x70:bf16@padding=7,values=cauchy dy=f32 --epsilon 0": what runs it again.
std::string command_line(const Operation& op, const Request& request);

}  // namespace rmsnorm::check

#endif  // RMSNORM_CHECK_OPERATION_H_
