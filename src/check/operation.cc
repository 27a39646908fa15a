#include "check/operation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "check/family.h"
#include "reference/hash.h"

namespace rmsnorm::check {

namespace {

std::int64_t rows_of(const Shape& shape) {
  std::int64_t rows = 1;
  for (std::size_t k = 0; k + 1 < shape.size(); ++k) rows *= shape[k];
  return rows;
}

}  // namespace

std::string option_name(std::string_view name) {
  std::string option = "--" + std::string(name);
  std::replace(option.begin() + 2, option.end(), '_', '-');
  return option;
}

rn_type Request::type_of(std::string_view name, rn_type otherwise) const {
  const auto found = types.find(name);
  return found == types.end() ? otherwise : found->second;
}

bool Request::has(std::string_view name, bool otherwise) const {
  const auto found = present.find(name);
  return found == present.end() ? otherwise : found->second;
}

std::int64_t Tensor::rows() const { return rows_of(slot.shape); }

rn_view Tensor::view() const {
  void* data = matrix.present() ? matrix.row(0) : nullptr;
  rn_view v = rn_tensor(data, slot.type, static_cast<std::int32_t>(slot.shape.size()), slot.shape.data());
  std::int64_t stride = matrix.present() ? matrix.stride() : cols();
  for (std::int32_t axis = v.rank - 2; axis >= 0; --axis) {
    v.strides[axis] = stride;
    stride *= std::max<std::int64_t>(v.shape[axis], 1);
  }
  return v;
}

bool Tensors::has(std::string_view name) const {
  const auto alias = aliases.find(name);
  const std::string_view wanted = alias == aliases.end() ? name : alias->second;
  return std::any_of(all.begin(), all.end(), [&](const Tensor& t) { return t.slot.name == wanted; });
}

const Tensor& Tensors::operator[](std::string_view name) const {
  const auto alias = aliases.find(name);
  const std::string_view wanted = alias == aliases.end() ? name : alias->second;
  for (const Tensor& tensor : all) {
    if (tensor.slot.name == wanted) return tensor;
  }
  throw std::out_of_range("no operand " + std::string(name));
}

const rn_view* Tensors::view(std::string_view name) const {
  if (!has(name)) return nullptr;
  const Tensor& tensor = (*this)[name];
  rn_view& view = views_[std::string(name)] = tensor.view();
  if (const auto moved = elsewhere.find(tensor.slot.name); moved != elsewhere.end()) view.data = moved->second;
  return &view;
}

rn_scratch Tensors::scratch() const {
  const auto bytes = static_cast<std::int64_t>(scratch_memory.size() * sizeof(double));
  return {const_cast<double*>(scratch_memory.data()), bytes};
}

std::vector<double> Tensors::row(std::string_view name, std::int64_t r) const {
  if (!has(name)) return {};
  const Tensor& tensor = (*this)[name];
  const bool input = tensor.slot.role == Role::kInput && aliases.find(name) == aliases.end();
  const Matrix& matrix = input ? tensor.before : tensor.matrix;
  std::vector<double> values(static_cast<std::size_t>(matrix.cols()));
  matrix.read_row(r, values.data());
  return values;
}

std::span<const Operation* const> operations() {
  static const std::vector<const Operation*> list = family();
  return list;
}

const Operation* operation_named(std::string_view name) {
  for (const Operation* op : operations()) {
    if (op->name() == name) return op;
  }
  return nullptr;
}

std::vector<rn_type> types_beside(rn_type x) {
  if (x == RN_F64) return {RN_F64, RN_F32};
  if (x == RN_F32) return {RN_F32, RN_F16, RN_BF16};
  return {x, RN_F32};
}

std::int64_t backward_scratch_bytes(const Shape& shape) {
  return rn_backward_scratch_bytes(rows_of(shape), std::max<std::int64_t>(shape.back(), 1));
}

double setting(const Operation& op, const Request& request, std::string_view name) {
  const auto given = request.settings.find(name);
  if (given != request.settings.end()) return given->second;
  for (const Setting& s : op.settings()) {
    if (s.name == name) return s.value;
  }
  throw std::out_of_range("no setting " + std::string(name));
}

Tensors make_tensors(const Operation& op, const Request& request) {
  Tensors tensors;
  std::uint64_t number = 0;
  for (const Slot& slot : op.slots(request)) {
    ++number;
    if (request.in_place && !slot.alias.empty()) {
      tensors.aliases[std::string(slot.name)] = slot.alias;
      continue;
    }
    Tensor tensor;
    tensor.slot = slot;
    const std::int64_t cols = slot.shape.back();
    const std::int64_t padding = slot.row_padding ? request.padding : 0;
    tensor.matrix = Matrix(slot.type, rows_of(slot.shape), cols, cols + padding, request.offset);
    if (slot.role == Role::kInput || slot.holds_values) {
      tensor.matrix.fill(slot.values, request.seed + number * 0x10001, reference::Stream::kX);
      tensor.before = tensor.matrix.copy();
    }
    tensors.all.push_back(std::move(tensor));
  }
  give_scratch(op, request, tensors);
  op.prepare(request, tensors);
  return tensors;
}

void give_scratch(const Operation& op, const Request& request, Tensors& tensors) {
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(op.scratch_bytes(request), 0));
  tensors.scratch_memory.assign((bytes + sizeof(double) - 1) / sizeof(double), std::nan(""));
}

void restore(Tensors& tensors) {
  for (Tensor& tensor : tensors.all) {
    if (tensor.before.present()) tensor.matrix.take_rows(tensor.before, 0);
  }
  std::fill(tensors.scratch_memory.begin(), tensors.scratch_memory.end(), std::nan(""));
}

rn_status call(const Operation& op, const Request& request, const Tensors& tensors, const rn_execution* execution) {
  if (!request.target.empty()) {
    const rn_status status = rn_use_target(request.target.c_str());
    if (status != RN_OK) return status;
  }
  return op.call(request, tensors, execution != nullptr ? *execution : rn_execution{request.threads, nullptr, nullptr});
}

std::string damage(const Request&, const Tensors& tensors) {
  for (const Tensor& tensor : tensors.all) {
    const std::string name(tensor.slot.name);
    if (!tensor.matrix.fences_intact()) return "memory around " + name + " was written";
    const bool written = std::any_of(tensors.aliases.begin(), tensors.aliases.end(),
                                     [&](const auto& alias) { return alias.second == name; });
    if (tensor.slot.role == Role::kInput && !written && !tensor.matrix.same_bytes(tensor.before)) {
      return name + " was written";
    }
  }
  return "";
}

std::uint64_t hash_of_outputs(const Tensors& tensors) {
  std::map<std::string_view, std::uint64_t> hashes;  // by name, so that in place and apart give the same
  for (const Tensor& tensor : tensors.all) {
    if (tensor.slot.role == Role::kOutput) hashes[tensor.slot.name] = tensor.matrix.hash();
  }
  for (const auto& [output, input] : tensors.aliases) hashes[output] = tensors[input].matrix.hash();
  std::uint64_t hash = reference::kHashSeed;
  for (const auto& [name, value] : hashes) hash = reference::hash_word(hash, value);
  return hash;
}

std::string command_line(const Operation& op, const Request& r) {
  std::string line = "rmsnorm check " + std::string(op.name()) + " x=";
  for (std::size_t k = 0; k < r.shape.size(); ++k) line += (k == 0 ? "" : "x") + std::to_string(r.shape[k]);
  line += ":" + std::string(rn_type_name(r.x));
  std::string layout;
  if (r.padding != 0) layout += ",padding=" + std::to_string(r.padding);
  if (r.offset != 0) layout += ",offset=" + std::to_string(r.offset);
  if (r.values != reference::Values::kNormal) layout += ",values=" + std::string(reference::name_of(r.values));
  if (r.seed != 1) layout += ",seed=" + std::to_string(r.seed);
  if (!layout.empty()) line += "@" + layout.substr(1);
  for (const auto& [name, type] : r.types) {
    if (r.has(name, true)) line += " " + name + "=" + rn_type_name(type);
  }
  for (const auto& [name, present] : r.present) {
    if (!present) line += " " + name + "=absent";
    if (present && r.types.find(name) == r.types.end()) line += " " + name + "=present";
  }
  for (const Setting& s : op.settings()) {
    const double value = setting(op, r, s.name);
    if (value == s.value) continue;
    line += " " + option_name(s.name) + " " +
            (s.choices.empty() ? shortest(value) : std::string(s.choices[static_cast<std::size_t>(value)]));
  }
  if (!r.target.empty()) line += " --target " + r.target;
  if (r.threads != 1) line += " --threads " + std::to_string(r.threads);
  if (r.in_place) line += " --in-place";
  return line;
}

}  // namespace rmsnorm::check
