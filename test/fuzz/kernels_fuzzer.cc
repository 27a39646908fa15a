// A case from the first bytes, element bits from the rest: all targets of this machine give the same bits and write
// nothing but their outputs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "check/operands.h"
#include "reference/hash.h"

namespace {

using rmsnorm::check::Case;
using rmsnorm::check::Matrix;
using rmsnorm::check::Op;
using rmsnorm::check::Operands;

// Bytes of the input, then zeros.
class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  unsigned next() { return at_ < size_ ? data_[at_++] : 0u; }
  unsigned below(unsigned limit) { return next() % limit; }

  // Repeats what is left over the elements, so that short inputs fill long rows with all kinds of bits.
  void fill(Matrix& matrix) {
    const std::size_t row_bytes = static_cast<std::size_t>(matrix.cols()) * rn_type_size(matrix.type());
    const std::size_t left = size_ - at_;
    for (std::int64_t r = 0; matrix.present() && left > 0 && r < matrix.rows(); ++r) {
      auto* row = reinterpret_cast<std::uint8_t*>(matrix.row(r));
      for (std::size_t i = 0; i < row_bytes; ++i) row[i] = data_[at_ + (cursor_++ % left)];
    }
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
  std::size_t cursor_ = 0;
};

rn_type any_type(Reader& in) { return static_cast<rn_type>(in.below(4)); }

Case read_case(Reader& in) {
  const Op op = rmsnorm::check::kAllOps[in.below(std::size(rmsnorm::check::kAllOps))];
  const rn_type type = any_type(in);
  const std::int64_t cols = 1 + in.next() + 256 * in.below(16);
  Case c = rmsnorm::check::make_case(op, type, in.below(6), cols);
  c.out = any_type(in);
  if (in.below(2) != 0) c.weight = any_type(in);
  if (in.below(2) != 0) c.bias = any_type(in);
  if (in.below(2) != 0) c.residual = any_type(in);
  if (in.below(2) != 0) c.residual_out = any_type(in);
  c.stride = in.below(2) != 0 ? cols + in.below(64) : 0;
  c.offset = in.below(16);
  c.epsilon = in.below(2) != 0 ? 0 : c.epsilon;
  c.weight_offset = in.below(3);
  c.epsilon_placement = static_cast<rn_epsilon_placement>(in.below(2));
  c.rounding = static_cast<rn_rounding>(in.below(3));
  c.partial = in.below(2) != 0 ? 1 + in.next() % cols : 0;
  c.norm_input = static_cast<rn_norm_input>(in.below(2));
  c.threads = 1 + static_cast<std::int32_t>(in.below(3));
  c.in_place = in.below(2) != 0;
  if (c.in_place) {
    c.out = c.x;
    c.residual_out = c.residual;
  }
  return c;
}

std::uint64_t hash_of(const Case& c, const Operands& o) {
  std::uint64_t hash = rmsnorm::reference::kHashSeed;
  for (const Matrix* result : {&o.result(c.in_place), &o.sum(c.in_place), &o.mean, &o.inv}) {
    if (result->present()) hash = rmsnorm::reference::hash_word(hash, result->hash());
  }
  return hash;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  bool first = true;
  std::uint64_t wanted = 0;
  for (std::int32_t target = 0; target < rn_target_count(); ++target) {
    if (rn_target_supported(target) == 0) continue;
    Reader in(data, size);
    const Case c = read_case(in);
    Operands operands(c);
    for (Matrix* input : {&operands.x, &operands.residual, &operands.weight, &operands.bias}) in.fill(*input);
    if (rn_use_target(rn_target_name(target)) != RN_OK) std::abort();
    if (call(c, operands) != RN_OK) {
      if (first) return 0;  // a combination of types or options that a rule forbids, on every target
      std::fprintf(stderr, "%s refuses what another target took: %s\n", rn_target_name(target), rn_last_error());
      std::abort();
    }
    for (const Matrix* operand : {&operands.out, &operands.residual_out, &operands.x, &operands.residual}) {
      if (!operand->fences_intact()) std::abort();
    }
    const std::uint64_t hash = hash_of(c, operands);
    if (!first && hash != wanted) {
      std::fprintf(stderr, "%s differs: %s\n", rn_target_name(target), command_line(c).c_str());
      std::abort();
    }
    wanted = hash;
    first = false;
  }
  return 0;
}
