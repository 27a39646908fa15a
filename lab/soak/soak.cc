#include "lab/soak/soak.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>

#include "check/judge.h"
#include "check/operation.h"
#include "tools/progress.h"

namespace rmsnorm::lab {

namespace {

using check::Op;
using reference::Values;

constexpr rn_type kTypes[] = {RN_F32, RN_F16, RN_BF16, RN_F64};
constexpr double kEpsilons[] = {1e-6, 0, 1e-12, 1e-5, 0.1};
constexpr int kMostThreads = 8;
constexpr double kSamplesOfMemory = 40;

// Elements of one case: the judge takes most of a microsecond for each. One case in kOneLargeIn has enough of them to
// be shared by threads.
constexpr double kUsualElements = 1 << 12, kManyElements = 1 << 19;
constexpr double kUsualWidth = 1 << 11, kLargeWidth = 1 << 17;
constexpr int kOneLargeIn = 128;

// Draws from a counter: the numbers of one case do not depend on those before it.
class Dice {
 public:
  Dice(std::uint64_t seed, std::int64_t number)
      : state_(reference::scatter(reference::scatter(seed) + static_cast<std::uint64_t>(number))) {}

  std::uint64_t next() { return state_ = reference::scatter(state_ + 1); }
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(limit));
  }
  bool one_in(std::int64_t count) { return below(count) == 0; }
  template <class List>
  auto of(const List& list) {
    return std::data(list)[below(static_cast<std::int64_t>(std::size(list)))];
  }
  // 1 .. most, each order of magnitude as often as any other.
  std::int64_t size_up_to(double most) {
    const double share = static_cast<double>(next() >> 11) * 0x1p-53;
    return std::max<std::int64_t>(1, std::llround(std::exp2(share * std::log2(most))));
  }

 private:
  std::uint64_t state_;
};

struct Shape {
  std::int64_t rows, cols;
};

Shape any_shape(Dice& dice) {
  const bool large = dice.one_in(kOneLargeIn);
  const std::int64_t cols = dice.size_up_to(large ? kLargeWidth : kUsualWidth);
  const double rows = (large ? kManyElements : kUsualElements) / static_cast<double>(cols);
  return {large ? std::max<std::int64_t>(1, static_cast<std::int64_t>(rows)) : dice.size_up_to(std::max(rows, 1.0)),
          cols};
}

Values any_values(Dice& dice) { return dice.of(reference::kNamedValues).values; }

std::string any_target(Dice& dice) {
  std::vector<std::string> names;
  for (std::int32_t i = 0; i < rn_target_count(); ++i) {
    if (rn_target_supported(i)) names.emplace_back(rn_target_name(i));
  }
  return dice.of(names);
}

check::Case any_norm(Dice& dice) {
  const Op op = dice.of(check::kAllOps);
  const rn_type type = dice.of(kTypes);
  const auto [rows, cols] = any_shape(dice);
  check::Case c = check::make_case(op, type, rows, cols);
  const std::vector<rn_type> types = check::types_beside(type);
  c.out = dice.of(types);
  if (dice.one_in(2)) c.stride = cols + dice.below(65);
  c.offset = dice.below(16);
  c.values = any_values(dice);
  c.seed = dice.next() >> 16;
  c.target = any_target(dice);
  c.threads = 1 + static_cast<std::int32_t>(dice.below(kMostThreads));
  if (op != Op::kCenter) {
    if (!dice.one_in(4)) c.weight = dice.of(types);
    if (dice.one_in(2)) c.bias = dice.of(types);
    c.weight_offset = dice.one_in(3) ? 1 : 0;
    c.epsilon = dice.of(kEpsilons);
  }
  if (check::is_rms(op)) {
    c.rounding = static_cast<rn_rounding>(dice.below(std::size(check::kRoundingNames)));
    c.epsilon_placement = static_cast<rn_epsilon_placement>(dice.below(2));
    if (dice.one_in(3)) c.partial = 1 + dice.below(cols);
  }
  if (check::is_add(op)) {
    if (check::is_16bit(type)) {
      c.residual = dice.of(types);
      c.residual_out = dice.of(types);
    }
    c.norm_input = static_cast<rn_norm_input>(dice.below(2));
  }
  c.in_place = c.out == c.x && c.residual == c.residual_out && dice.one_in(3);
  return c;
}

struct AnyRequest {
  const check::Operation* op;
  check::Request request;
};

AnyRequest any_request(Dice& dice) {
  const check::Operation* op = dice.of(check::operations());
  const std::vector<check::Request> variants = op->variants(dice.of(kTypes));
  check::Request request = variants[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(variants.size())))];
  const auto [rows, cols] = any_shape(dice);
  const auto partial = request.settings.find("partial");
  const std::int64_t least = partial == request.settings.end() ? 1 : static_cast<std::int64_t>(partial->second);
  request.shape = op->shape_for(rows, std::max(cols, least));
  request.values = any_values(dice);
  request.seed = dice.next() >> 16;
  request.padding = dice.below(9);
  request.offset = dice.below(16);
  request.target = any_target(dice);
  request.threads = 1 + static_cast<std::int32_t>(dice.below(kMostThreads));
  return {op, request};
}

struct Outcome {
  std::string operation, line, error;
  std::int64_t elements = 0;
};

// Turns a bit of the first result over.
void spoil(const check::Matrix& result) {
  if (result.present() && result.rows() > 0) *result.row(0) ^= 1 << 6;
}

Outcome run_norm(Dice& dice, bool spoiled, bool call) {
  const check::Case c = any_norm(dice);
  Outcome outcome{std::string(name_of(c.op)), check::command_line(c), "", c.rows * c.cols};
  if (!call) return outcome;
  const check::Operands operands(c);
  if (check::call(c, operands) != RN_OK) {
    outcome.error = std::string("refused: ") + rn_last_error();
    return outcome;
  }
  if (spoiled) spoil(operands.result(c.in_place));
  outcome.error = check::damage(c, operands);
  if (outcome.error.empty()) outcome.error = check::judge(c, operands).error;
  return outcome;
}

Outcome run_operation(Dice& dice, bool spoiled, bool call) {
  const auto [op, request] = any_request(dice);
  Outcome outcome{std::string(op->name()), check::command_line(*op, request), ""};
  outcome.elements = 1;
  for (const std::int64_t extent : request.shape) outcome.elements *= extent;
  if (!call) return outcome;
  const check::Tensors tensors = check::make_tensors(*op, request);
  if (check::call(*op, request, tensors) != RN_OK) {
    outcome.error = std::string("refused: ") + rn_last_error();
    return outcome;
  }
  if (spoiled) {
    const auto output = std::find_if(tensors.all.begin(), tensors.all.end(),
                                     [](const check::Tensor& t) { return t.slot.role == check::Role::kOutput; });
    if (output != tensors.all.end()) spoil(output->matrix);
  }
  outcome.error = check::damage(request, tensors);
  if (outcome.error.empty()) outcome.error = op->judge(request, tensors).error;
  return outcome;
}

Outcome run_case(std::uint64_t seed, std::int64_t number, bool spoiled, bool call) {
  Dice dice(seed, number);
  return dice.one_in(3) ? run_norm(dice, spoiled, call) : run_operation(dice, spoiled, call);
}

MemorySample memory_now(double seconds) {
  MemorySample sample{seconds, 0, 0};
#ifdef __GLIBC__
  ::malloc_trim(0);  // what is free is no growth
#if __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = ::mallinfo2();
  sample.allocated = static_cast<double>(info.uordblks + info.hblkhd);
#endif
#endif
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  sample.resident = static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return sample;
}

}  // namespace

std::string soak_case_line(std::uint64_t seed, std::int64_t number) {
  return run_case(seed, number, false, false).line;
}

SoakResult soak(const SoakOptions& options) {
  using Clock = std::chrono::steady_clock;
  const std::string target = rn_target();
  const auto start = Clock::now();
  SoakResult result;
  tools::Progress progress("soak", static_cast<std::uint64_t>(options.seconds * 1000));
  double told = 0;
  for (std::int64_t number = 0;; ++number) {
    result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (options.progress) progress.advance(static_cast<std::uint64_t>((result.seconds - told) * 1000));
    told = result.seconds;
    const double due = options.seconds * static_cast<double>(result.memory.size()) / kSamplesOfMemory;
    if (result.seconds >= due) result.memory.push_back(memory_now(result.seconds));
    if (result.seconds >= options.seconds || result.faults.size() >= options.most_faults ||
        number > options.last_case.value_or(number)) {
      break;
    }
    Outcome outcome = run_case(options.seed, number, options.spoiled == number, true);
    ++result.cases;
    ++result.cases_of[outcome.operation];
    result.elements += outcome.elements;
    if (!outcome.error.empty()) result.faults.push_back({number, outcome.line, outcome.error});
  }
  rn_use_target(target.c_str());
  return result;
}

MemoryGrowth growth(const std::vector<MemorySample>& samples) {
  const std::size_t quarter = samples.size() / 4;
  if (quarter == 0) return {};
  MemoryGrowth growth;
  for (std::size_t i = 0; i < quarter; ++i) {
    const MemorySample& early = samples[quarter + i];
    const MemorySample& late = samples[samples.size() - 1 - i];
    growth.resident += (late.resident - early.resident) / static_cast<double>(quarter);
    growth.allocated += (late.allocated - early.allocated) / static_cast<double>(quarter);
  }
  return growth;
}

}  // namespace rmsnorm::lab
