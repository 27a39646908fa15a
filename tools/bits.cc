#include "tools/bits.h"

#include <vector>

#include "check/operands.h"
#include "check/operation.h"
#include "cpu/rows.h"
#include "reference/hash.h"
#include "tools/arguments.h"
#include "tools/progress.h"

namespace rmsnorm::tools {

namespace {

using check::Case;
using check::Op;
using reference::Values;

struct Width {
  std::int64_t rows, cols;
};

// Tails of every vector length, one chunk and more of each kind of lane, several rows side by side, several segments.
constexpr Width kWidths[] = {{3, 1},   {3, 2},   {5, 7},    {4, 31},   {4, 33},   {3, 64},   {9, 65},    {17, 128},
                             {3, 255}, {2, 768}, {2, 1000}, {3, 2049}, {2, 4093}, {3, 4096}, {2, 12289}, {1, 140003}};

constexpr rn_type kTypes[] = {RN_F32, RN_F16, RN_BF16, RN_F64};

// What can be stored for x of that type; the first is the plain case.
std::vector<rn_type> out_types(rn_type x) {
  if (x == RN_F64) return {RN_F64, RN_F32};
  if (x == RN_F32) return {RN_F32, RN_F16, RN_BF16};
  return {x, RN_F32};
}

std::vector<rn_type> weight_types(rn_type x) {
  if (x == RN_F64) return {RN_F64, RN_F32};
  return {RN_F32, RN_F16, RN_BF16};
}

// Every combination would take minutes under an emulator; instead each option meets each operation, type and width, and
// the values, layouts and parameter types rotate through them.
std::vector<Case> cases() {
  constexpr int kVariants = 6;
  constexpr std::int64_t kWideColumns = 5000;  // beyond it one variant for each operation, and no f16: they take long
  std::vector<Case> list;
  std::size_t turn = 0;
  for (const Op op : check::kAllOps) {
    for (const rn_type type : kTypes) {
      for (const Width& width : kWidths) {
        const bool wide = width.cols > kWideColumns;
        if (wide && check::is_16bit(type) != (type == RN_BF16)) continue;
        for (int variant = 0; variant < (wide ? 1 : kVariants); ++variant) {
          Case c = check::make_case(op, type, width.rows, width.cols);
          const auto outs = out_types(type);
          const auto weights = weight_types(type);
          c.values = reference::kNamedValues[turn % std::size(reference::kNamedValues)].values;
          c.seed = turn + 1;
          c.offset = static_cast<std::int64_t>(turn % 16);
          c.stride = turn % 3 == 0 ? width.cols + static_cast<std::int64_t>(turn % 8) : 0;
          if (variant % 2 == 1) c.out = outs[turn % outs.size()];
          if (op != Op::kCenter) {
            if (variant != 0) c.weight = weights[turn % weights.size()];
            if (variant == 2 || variant == 5) c.bias = weights[turn / 2 % weights.size()];
            if (variant == 3) c.weight_offset = 1;
            if (variant == 4) c.epsilon = 0;
          }
          if (check::is_rms(op)) {
            c.rounding = static_cast<rn_rounding>(variant % 3);
            if (variant == 4) c.epsilon_placement = RN_EPSILON_OUTSIDE;
            if (variant == 5) c.partial = (width.cols + 2) / 3;
          }
          if (check::is_add(op)) {
            if (check::is_16bit(type) && variant % 2 == 1) c.residual = RN_F32;
            if (check::is_16bit(type) && variant % 3 == 1) c.residual_out = RN_F32;
            if (variant >= 3) c.norm_input = RN_NORM_UNROUNDED_SUM;
          }
          c.in_place = c.out == c.x && c.residual == c.residual_out && turn % 5 == 0;
          list.push_back(c);
          ++turn;
        }
      }
    }
  }
  return list;
}

// Each variant of each operation and type on a few shapes; values and layouts rotate.
struct BitsCase {
  const check::Operation* op;
  check::Request request;
};
std::vector<BitsCase> operation_cases() {
  constexpr Width kFew[] = {{3, 1}, {5, 33}, {9, 128}, {20, 255}, {2, 2049}};
  std::vector<BitsCase> list;
  std::size_t turn = 0;
  for (const check::Operation* op : check::operations()) {
    for (const rn_type type : kTypes) {
      for (const Width& width : kFew) {
        for (check::Request r : op->variants(type)) {
          r.shape = op->shape_for(width.rows, width.cols);
          r.values = reference::kNamedValues[turn % std::size(reference::kNamedValues)].values;
          r.seed = ++turn;
          r.padding = static_cast<std::int64_t>(turn % 3);
          r.offset = static_cast<std::int64_t>(turn % 16);
          list.push_back({op, r});
        }
      }
    }
  }
  return list;
}

}  // namespace

std::uint64_t hash_of_results(const std::string& name, std::int32_t threads) {
  // The same results are asked for from the ways of large calls: shared by threads, written around the caches.
  if (threads > 1) call_sizes() = {1 << 10, 4 << 10};
  const std::vector<Case> all = cases();
  const std::vector<BitsCase> others = operation_cases();
  Progress progress("check --bits " + name, all.size() + others.size());
  std::uint64_t hash = reference::kHashSeed;
  for (Case c : all) {
    c.threads = threads;
    const check::Operands operands(c);
    require(check::call(c, operands));
    const check::Matrix* results[] = {&operands.result(c.in_place), &operands.sum(c.in_place), &operands.mean,
                                      &operands.inv};
    for (const check::Matrix* result : results) {
      if (result->present()) hash = reference::hash_word(hash, result->hash());
    }
    progress.advance(1);
  }
  for (const BitsCase& c : others) {
    const check::Tensors tensors = check::make_tensors(*c.op, c.request);
    const rn_execution execution{threads, nullptr, nullptr};
    // A shape that a variant cannot take (more partial columns than there are) is refused on every machine alike.
    if (check::call(*c.op, c.request, tensors, &execution) == RN_OK) {
      hash = reference::hash_word(hash, check::hash_of_outputs(tensors));
    }
    progress.advance(1);
  }
  return hash;
}

}  // namespace rmsnorm::tools
