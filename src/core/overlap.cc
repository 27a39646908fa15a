#include "core/overlap.h"

#include <algorithm>
#include <cinttypes>
#include <numeric>

#include "core/status.h"
#include "core/views.h"

namespace rmsnorm {
namespace {

constexpr int kMaxSteps = 4096;
constexpr int kMaxTerms = 2 * kMaxAxes;

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// Is there a choice of n_k, each from low_k to high_k, such that  start + sum of stride_k * n_k  lies in [least, most]?
// Every low_k <= 0 <= high_k, so that partial sums stay within the spans of the regions.
class Search {
 public:
  // Adds stride * n for n from 0 to size-1; the stride may be negative.
  void add_index(int64_t stride, int64_t size) {
    if (stride >= 0) {
      add(stride, 0, size - 1);
    } else {
      add(-stride, 1 - size, 0);
    }
  }

  void add(int64_t stride, int64_t low, int64_t high) {
    if (stride == 0 || low == high) return;
    int at = 0;
    while (at < count_ && terms_[at].stride > stride) ++at;
    if (at < count_ && terms_[at].stride == stride) {
      terms_[at].low += low;
      terms_[at].high += high;
      return;
    }
    std::copy_backward(terms_ + at, terms_ + count_, terms_ + count_ + 1);
    terms_[at] = {stride, low, high, 0, 0, 0};
    ++count_;
  }

  Overlap run(int64_t start, int64_t least, int64_t most) {
    least_ = least;
    most_ = most;
    // A term that steps no further than the window is wide leaves no gap: it widens the window instead.
    while (count_ > 0 && terms_[count_ - 1].stride <= most_ - least_ + 1) {
      const Term& term = terms_[--count_];
      least_ -= term.stride * term.high;
      most_ -= term.stride * term.low;
    }
    int64_t lowest = 0;
    int64_t highest = 0;
    int64_t divisor = 0;
    for (int k = count_ - 1; k >= 0; --k) {
      Term& term = terms_[k];
      term.rest_low = lowest;
      term.rest_high = highest;
      lowest += term.stride * term.low;
      highest += term.stride * term.high;
      divisor = std::gcd(divisor, term.stride);
      term.divisor = divisor;
    }
    steps_ = 0;
    return descend(0, start);
  }

 private:
  struct Term {
    int64_t stride;
    int64_t low, high;
    int64_t rest_low, rest_high;  // what the terms after this one can add
    int64_t divisor;              // of all that this term and those after it can add
  };

  Overlap descend(int k, int64_t sum) {
    if (k == count_) return sum >= least_ && sum <= most_ ? Overlap::kSome : Overlap::kNone;
    const Term& term = terms_[k];
    if (ceil_div(least_ - sum, term.divisor) > floor_div(most_ - sum, term.divisor)) return Overlap::kNone;
    const int64_t first = std::max(term.low, ceil_div(least_ - sum - term.rest_high, term.stride));
    const int64_t last = std::min(term.high, floor_div(most_ - sum - term.rest_low, term.stride));
    for (int64_t n = first; n <= last; ++n) {
      if (++steps_ > kMaxSteps) return Overlap::kUndecided;
      const Overlap found = descend(k + 1, sum + term.stride * n);
      if (found != Overlap::kNone) return found;
    }
    return Overlap::kNone;
  }

  Term terms_[kMaxTerms];  // by decreasing stride
  int count_ = 0;
  int64_t least_ = 0;
  int64_t most_ = 0;
  int steps_ = 0;
};

struct Interval {
  uintptr_t begin, end;
};

Interval bounds(const Region& region) {
  Interval result = {region.base, region.base + static_cast<uintptr_t>(region.bytes)};
  for (int k = 0; k < region.axes; ++k) {
    const int64_t reach = region.strides[k] * (region.shape[k] - 1);
    (reach < 0 ? result.begin : result.end) += static_cast<uintptr_t>(reach);
  }
  return result;
}

struct NamedRegion {
  const char* name;
  const Operand* operand;
  const Operand* alias;
  Region region;
  Interval bytes;
  int64_t count, apart;
  int64_t shape[kMaxAxes], strides[kMaxAxes];  // of the region, where it has an axis of its own
};

bool is_alias(const NamedRegion& output, const NamedRegion& input, int leading) {
  const Operand& a = *output.operand;
  const Operand& b = *input.operand;
  const bool same_steps = output.count == input.count && (output.count <= 1 || output.apart == input.apart);
  return same_steps && a.base == b.base && a.type == b.type && std::equal(a.strides, a.strides + leading, b.strides);
}

bool disjoint(Interval a, Interval b) { return a.end <= b.begin || b.end <= a.begin; }

rn_status refuse(const char* function, const NamedRegion& a, const char* with, Interval other, const char* rule) {
  return fail(RN_INVALID_VALUE,
              "%s: %s is in bytes 0x%" PRIxPTR " to 0x%" PRIxPTR " and overlaps %s in bytes 0x%" PRIxPTR
              " to 0x%" PRIxPTR "; it must %s",
              function, a.name, a.bytes.begin, a.bytes.end - 1, with, other.begin, other.end - 1, rule);
}

}  // namespace

Overlap overlap(const Region& a, const Region& b) {
  if (disjoint(bounds(a), bounds(b))) return Overlap::kNone;
  Search search;
  for (int k = 0; k < a.axes; ++k) search.add_index(a.strides[k], a.shape[k]);
  for (int k = 0; k < b.axes; ++k) search.add_index(-b.strides[k], b.shape[k]);
  return search.run(static_cast<int64_t>(a.base - b.base), 1 - a.bytes, b.bytes - 1);
}

Overlap overlap_with_itself(const Region& a) {
  struct Axis {
    int64_t stride, size;
  };
  Axis axes[kMaxAxes];  // by decreasing stride
  int count = 0;
  for (int k = 0; k < a.axes; ++k) {
    if (a.shape[k] <= 1) continue;
    const Axis axis = {a.strides[k] < 0 ? -a.strides[k] : a.strides[k], a.shape[k]};
    int at = count++;
    for (; at > 0 && axes[at - 1].stride < axis.stride; --at) axes[at] = axes[at - 1];
    axes[at] = axis;
  }
  // Two indices differ first on some axis k, by 1 or more (else exchange them), and by anything on those after it.
  Overlap result = Overlap::kNone;
  for (int k = 0; k < count && result != Overlap::kSome; ++k) {
    Search search;
    search.add(axes[k].stride, 0, axes[k].size - 2);
    for (int j = k + 1; j < count; ++j) search.add(axes[j].stride, 1 - axes[j].size, axes[j].size - 1);
    const Overlap found = search.run(axes[k].stride, 1 - a.bytes, a.bytes - 1);
    if (found != Overlap::kNone) result = found;
  }
  return result;
}

rn_status check_overlap(const char* function, const RowShape& shape, std::span<const Claim> outputs,
                        std::span<const Claim> inputs) {
  NamedRegion regions[kMaxClaims];  // of the operands that are there, outputs first
  int count = 0;
  const auto add = [&](const Claim& claim) {
    const Operand& operand = *claim.operand;
    if (operand.base == nullptr || claim.count == 0) return;
    NamedRegion& added = regions[count++];
    added.name = claim.name;
    added.operand = &operand;
    added.alias = claim.alias;
    added.region = {reinterpret_cast<uintptr_t>(operand.base), claim.columns * type_size(operand.type),
                    claim.shared ? 0 : shape.leading, shape.shape, operand.strides};
    added.count = claim.count;
    added.apart = claim.apart;
    if (claim.count > 1) {
      const int leading = added.region.axes;
      std::copy_n(shape.shape, leading, added.shape);
      std::copy_n(operand.strides, leading, added.strides);
      added.shape[leading] = claim.count;
      added.strides[leading] = claim.apart;
      added.region.axes = leading + 1;
      added.region.shape = added.shape;
      added.region.strides = added.strides;
    }
    added.bytes = bounds(added.region);
  };
  for (const Claim& claim : outputs) add(claim);
  const int written = count;
  for (const Claim& claim : inputs) add(claim);

  for (int i = 0; i < written; ++i) {
    const NamedRegion& output = regions[i];
    if (overlap_with_itself(output.region) == Overlap::kSome) {
      return refuse(function, output, "itself", output.bytes, "have each element at its own place");
    }
    for (int j = i + 1; j < count; ++j) {
      const NamedRegion& other = regions[j];
      if (disjoint(output.bytes, other.bytes)) continue;
      const bool may_be_alias = output.alias == other.operand;
      if (may_be_alias && is_alias(output, other, shape.leading)) continue;
      if (overlap(output.region, other.region) == Overlap::kSome) {
        return refuse(function, output, other.name, other.bytes,
                      may_be_alias ? "be that same view or share no byte with it" : "share no byte with it");
      }
    }
  }
  return RN_OK;
}

}  // namespace rmsnorm
