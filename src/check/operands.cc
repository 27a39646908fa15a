#include "check/operands.h"

#include <cstring>

#include "reference/hash.h"

namespace rmsnorm::check {

using reference::Stream;
using reference::Values;

namespace {

constexpr std::size_t kBoundary = 64;
constexpr std::size_t kFence = 256;  // bytes before and behind
constexpr unsigned char kCanary = 0xa5;

}  // namespace

Matrix::Matrix(rn_type type, std::int64_t rows, std::int64_t cols, std::int64_t stride, std::int64_t offset)
    : type_(type), rows_(rows), cols_(cols), stride_(stride == 0 ? cols : stride) {
  const std::size_t size = rn_type_size(type);
  const std::size_t elements = static_cast<std::size_t>(rows == 0 ? 0 : (rows - 1) * stride_ + cols);
  const std::size_t shift = static_cast<std::size_t>(offset) * size;
  memory_.assign(elements * size + shift + 2 * kFence + kBoundary, kCanary);
  const std::size_t address = reinterpret_cast<std::uintptr_t>(memory_.data()) + kFence;
  start_ = kFence + (kBoundary - address % kBoundary) % kBoundary + shift;
}

char* Matrix::row(std::int64_t r) const {
  const std::int64_t size = static_cast<std::int64_t>(rn_type_size(type_));
  return const_cast<char*>(reinterpret_cast<const char*>(memory_.data())) + start_ + r * stride_ * size;
}

rn_view Matrix::view() const {
  rn_view v = rn_matrix(row(0), type_, rows_, cols_);
  v.strides[0] = stride_;
  return v;
}

rn_view Matrix::vector_view() const { return rn_vector(row(0), type_, rows_ * cols_); }

void Matrix::fill(Values values, std::uint64_t seed, Stream stream) {
  for (std::int64_t r = 0; r < rows_; ++r) reference::fill_row(row(r), values, type_, seed, stream, r, cols_);
}

void Matrix::read_row(std::int64_t r, double* values) const {
  for (std::int64_t i = 0; i < cols_; ++i) values[i] = reference::load(type_, row(r), i);
}

bool Matrix::fences_intact() const {
  if (!present()) return true;
  const std::size_t size = rn_type_size(type_);
  std::size_t next = 0;
  const auto canaries_until = [&](std::size_t end) {
    for (; next < end; ++next) {
      if (memory_[next] != kCanary) return false;
    }
    return true;
  };
  for (std::int64_t r = 0; r < rows_; ++r) {
    const std::size_t begin = start_ + static_cast<std::size_t>(r * stride_) * size;
    if (!canaries_until(begin)) return false;
    next = begin + static_cast<std::size_t>(cols_) * size;
  }
  return canaries_until(memory_.size());
}

std::uint64_t Matrix::hash() const {
  std::uint64_t hash = reference::kHashSeed;
  for (std::int64_t r = 0; r < rows_; ++r) hash = reference::hash_elements(hash, type_, row(r), cols_);
  return hash;
}

bool Matrix::same_bytes(const Matrix& other) const {
  if (type_ != other.type_ || rows_ != other.rows_ || cols_ != other.cols_) return false;
  const std::size_t row_bytes = static_cast<std::size_t>(cols_) * rn_type_size(type_);
  for (std::int64_t r = 0; r < rows_; ++r) {
    if (std::memcmp(row(r), other.row(r), row_bytes) != 0) return false;
  }
  return true;
}

Matrix Matrix::copy() const {
  if (!present()) return {};
  const std::int64_t offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row(0)) % kBoundary) /
                              static_cast<std::int64_t>(rn_type_size(type_));
  Matrix other(type_, rows_, cols_, stride_, offset);
  other.take_rows(*this, 0);
  return other;
}

void Matrix::take_rows(const Matrix& from, std::int64_t begin) {
  const std::size_t row_bytes = static_cast<std::size_t>(cols_) * rn_type_size(type_);
  for (std::int64_t r = 0; r < rows_; ++r) std::memcpy(row(r), from.row(begin + r), row_bytes);
}

void Operands::allocate(const Case& c) {
  const auto matrix = [&](rn_type type) { return Matrix(type, c.rows, c.cols, c.stride, c.offset); };
  x = matrix(c.x);
  if (c.weight) weight = Matrix(*c.weight, 1, c.cols, 0, c.offset);
  if (c.bias) bias = Matrix(*c.bias, 1, c.cols, 0, c.offset);
  if (is_add(c.op)) residual = matrix(c.residual);
  if (!c.in_place) out = matrix(c.out);
  if (!c.in_place && is_add(c.op)) residual_out = matrix(c.residual_out);
  const rn_type statistic = c.x == RN_F64 ? RN_F64 : RN_F32;
  if (c.op != Op::kCenter) inv = Matrix(statistic, c.rows, 1, 0, c.offset);
  if (is_layer(c.op)) mean = Matrix(statistic, c.rows, 1, 0, c.offset);
}

void Operands::remember() {
  x_before = x.copy();
  residual_before = residual.copy();
  weight_before = weight.copy();
  bias_before = bias.copy();
}

Operands::Operands(const Case& c) {
  allocate(c);
  x.fill(c.values, c.seed, Stream::kX);
  residual.fill(c.values, c.seed, Stream::kResidual);
  weight.fill(Values::kWeight, c.seed, Stream::kWeight);
  bias.fill(Values::kNormal, c.seed, Stream::kBias);
  remember();
}

Operands::Operands(const Case& c, const Operands& values, std::int64_t begin) {
  allocate(c);
  x.take_rows(values.x_before, begin);
  residual.take_rows(values.residual_before, begin);
  weight.take_rows(values.weight_before, 0);
  bias.take_rows(values.bias_before, 0);
  remember();
}

rn_status call(const Case& c, const Operands& o, const rn_execution* execution) {
  const rn_execution own{c.threads, nullptr, nullptr};
  if (!execution) execution = &own;
  const Matrix& result = o.result(c.in_place);
  const rn_view x = o.x.view(), out = result.view();
  const rn_view weight = o.weight.present() ? o.weight.vector_view() : rn_view{};
  const rn_view bias = o.bias.present() ? o.bias.vector_view() : rn_view{};
  const rn_view* w = o.weight.present() ? &weight : nullptr;
  const rn_view* b = o.bias.present() ? &bias : nullptr;
  if (c.op == Op::kCenter) return rn_center(&out, &x, execution);

  const rn_view inv = o.inv.vector_view();
  const rn_rms_norm_options rms{c.epsilon, c.weight_offset, c.epsilon_placement, c.rounding, c.partial};
  if (c.op == Op::kRmsNorm) return rn_rms_norm(&out, &inv, &x, w, b, &rms, execution);
  const rn_layer_norm_options layer{c.epsilon, c.weight_offset};
  const rn_view mean = o.mean.present() ? o.mean.vector_view() : rn_view{};
  if (c.op == Op::kLayerNorm) return rn_layer_norm(&out, &mean, &inv, &x, w, b, &layer, execution);

  const rn_view residual = o.residual.view(), residual_out = o.sum(c.in_place).view();
  if (c.op == Op::kAddRmsNorm) {
    const rn_add_rms_norm_options options{rms, c.norm_input};
    return rn_add_rms_norm(&out, &residual_out, &inv, &x, &residual, w, b, &options, execution);
  }
  const rn_add_layer_norm_options options{layer, c.norm_input};
  return rn_add_layer_norm(&out, &residual_out, &mean, &inv, &x, &residual, w, b, &options, execution);
}

std::string damage(const Case& c, const Operands& o) {
  const Matrix* all[] = {&o.x, &o.residual, &o.weight, &o.bias, &o.out, &o.residual_out, &o.mean, &o.inv};
  const char* names[] = {"x", "residual", "weight", "bias", "out", "residual_out", "mean", "inv"};
  for (int i = 0; i < 8; ++i) {
    if (!all[i]->fences_intact()) return std::string("memory around ") + names[i] + " was written";
  }
  struct Input {
    const Matrix &now, &before;
    const char* name;
  };
  const Input inputs[] = {{o.weight, o.weight_before, "weight"},
                          {o.bias, o.bias_before, "bias"},
                          {o.x, o.x_before, "x"},
                          {o.residual, o.residual_before, "residual"}};
  for (const Input& input : inputs) {
    const bool may_change = c.in_place && (&input.now == &o.x || &input.now == &o.residual);
    if (!may_change && !input.now.same_bytes(input.before)) return std::string(input.name) + " was written";
  }
  return "";
}

}  // namespace rmsnorm::check
