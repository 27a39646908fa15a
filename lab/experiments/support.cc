#include "lab/experiments/support.h"

#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <utility>

namespace rmsnorm::lab {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& run) {
  const auto start = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <class F>
std::vector<double> by_pair(const std::vector<double>& a, const std::vector<double>& b, F f) {
  if (a.size() != b.size()) {
    throw std::invalid_argument(fmt::format("pairs have {} and {} values; they must have as many", a.size(), b.size()));
  }
  std::vector<double> result(a.size());
  std::transform(a.begin(), a.end(), b.begin(), result.begin(), f);
  return result;
}

// Tensors may outlive the meter, so what their deleter needs outlives it, too.
struct Counters {
  std::atomic<std::int64_t> live{0}, peak{0};
};
Counters counters;

struct Block {
  c10::DataPtr data;
  std::int64_t size;
};

void release(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  counters.live -= block->size;
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    auto block = std::make_unique<Block>(Block{base->allocate(size), static_cast<std::int64_t>(size)});
    const std::int64_t live = counters.live += block->size;
    std::int64_t peak = counters.peak;
    while (peak < live && !counters.peak.compare_exchange_weak(peak, live)) {
    }
    void* const data = block->data.get();
    const c10::Device device = block->data.device();
    return {data, block.release(), &release, device};
  }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }

  c10::Allocator* base = nullptr;
};

CountingAllocator counting_allocator;

nlohmann::json to_json(const TrainResult& result) {
  nlohmann::json json = {{"diverged", result.diverged},
                         {"losses", nlohmann::json::array()},
                         {"gradient_norms", nlohmann::json::array()},
                         {"evaluations", nlohmann::json::array()}};
  for (const Step& step : result.steps) {
    json["losses"].push_back(step.loss);
    json["gradient_norms"].push_back(step.gradient_norm);
  }
  for (const Evaluation& e : result.evaluations) {
    json["evaluations"].push_back({{"step", e.step}, {"loss", e.loss}, {"accuracy", e.accuracy}});
  }
  return json;
}

Run run_from(const nlohmann::json& json) {
  Run run;
  run.diverged = json.at("diverged");
  for (const auto& loss : json.at("losses")) run.losses.push_back(loss);
  for (const auto& norm : json.at("gradient_norms")) run.gradient_norms.push_back(norm);
  for (const auto& e : json.at("evaluations")) {
    run.evaluations.push_back({e.at("step"), e.at("loss"), e.at("accuracy")});
  }
  return run;
}

}  // namespace

std::vector<std::vector<double>> interleaved_seconds(const std::vector<Variant>& variants, int rounds, int warm_up) {
  torch::set_num_threads(kThreads);
  std::vector<std::vector<double>> seconds(variants.size());
  for (int round = -warm_up; round < rounds; ++round) {
    for (std::size_t i = 0; i < variants.size(); ++i) {
      const std::size_t v = (i + static_cast<std::size_t>(round + warm_up)) % variants.size();
      const double taken = seconds_of(variants[v].run);
      if (round >= 0) seconds[v].push_back(taken);
    }
  }
  return seconds;
}

nlohmann::json named_seconds(const std::vector<Variant>& variants, int rounds) {
  const auto seconds = interleaved_seconds(variants, rounds);
  nlohmann::json named;
  for (std::size_t i = 0; i < variants.size(); ++i) named[variants[i].name] = seconds[i];
  return named;
}

std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b) {
  return by_pair(a, b, [](double x, double y) { return x / y; });
}

std::vector<double> differences(const std::vector<double>& a, const std::vector<double>& b) {
  return by_pair(a, b, [](double x, double y) { return x - y; });
}

Interval relative(const std::vector<double>& a, const std::vector<double>& b) { return median_interval(ratios(a, b)); }

Starts of_starts(const std::vector<nlohmann::json>& pieces, const std::string& path) {
  Starts starts;
  for (const nlohmann::json& piece : pieces) {
    starts.push_back(piece.at(nlohmann::json::json_pointer(path)).get<std::vector<double>>());
  }
  return starts;
}

Starts ratios(const Starts& a, const Starts& b) {
  if (a.size() != b.size()) throw std::invalid_argument("pairs of starts must be as many on both sides");
  Starts result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) result[i] = ratios(a[i], b[i]);
  return result;
}

Interval median_interval(const Starts& starts) {
  std::vector<double> medians(starts.size());
  std::transform(starts.begin(), starts.end(), medians.begin(),
                 [](const std::vector<double>& rounds) { return median(rounds); });
  return median_interval(medians);
}

Interval relative(const Starts& a, const Starts& b) { return median_interval(ratios(a, b)); }

double median(const Starts& starts) { return median_interval(starts).estimate; }

Interval relative_mean(const std::vector<double>& a, const std::vector<double>& b) {
  const auto logarithm = [](double x) { return std::log(x); };
  std::vector<double> log_a(a.size()), log_b(b.size());
  std::transform(a.begin(), a.end(), log_a.begin(), logarithm);
  std::transform(b.begin(), b.end(), log_b.begin(), logarithm);
  const Interval log = mean_difference(log_a, log_b);
  return {std::exp(log.estimate), std::exp(log.low), std::exp(log.high)};
}

Interval finite_mean(const std::vector<double>& values) {
  std::vector<double> finite = values;
  std::erase_if(finite, [](double d) { return !std::isfinite(d); });
  return finite.size() < 2 ? Interval{std::nan(""), -kInfinity, kInfinity} : mean_interval(finite);
}

Interval mean_difference(const std::vector<double>& a, const std::vector<double>& b) {
  return finite_mean(differences(a, b));
}

Interval saving(const Interval& ratio) { return {1 - ratio.estimate, 1 - ratio.high, 1 - ratio.low}; }

double amdahl(double share, double part_ratio) { return 1 - share + share * part_ratio; }

AllocationMeter::AllocationMeter() {
  if (counting_allocator.base != nullptr) throw std::logic_error("an AllocationMeter lives; there is one at a time");
  counting_allocator.base = c10::GetCPUAllocator();
  counters.live = 0;
  counters.peak = 0;
  c10::SetCPUAllocator(&counting_allocator);
}

AllocationMeter::~AllocationMeter() {
  c10::SetCPUAllocator(counting_allocator.base);
  counting_allocator.base = nullptr;
}

std::int64_t AllocationMeter::live() const { return counters.live; }
std::int64_t AllocationMeter::peak() const { return counters.peak; }
void AllocationMeter::reset_peak() { counters.peak = counters.live.load(); }

std::string norm_name(const NormOptions& norm) { return name_of(norm.kind) + "-" + name_of(norm.code); }

TrainingStep::TrainingStep(Model model, Batch batch)
    : model_(std::move(model)),
      batch_(std::move(batch)),
      optimizer_(std::make_shared<torch::optim::AdamW>(model_->parameters(), torch::optim::AdamWOptions(1e-6))) {}

void TrainingStep::operator()() {
  optimizer_->zero_grad();
  loss_of(model_->forward(batch_.input), batch_.target).backward();
  torch::nn::utils::clip_grad_norm_(model_->parameters(), 1.0);
  optimizer_->step();
}

double Run::final_loss() const { return diverged || evaluations.empty() ? std::nan("") : evaluations.back().loss; }

double Run::final_accuracy() const {
  return diverged || evaluations.empty() ? std::nan("") : evaluations.back().accuracy;
}

std::vector<std::vector<Run>> paired_runs(Context& context, const std::string& key, const std::vector<Arm>& arms,
                                          const Data& data, int seeds) {
  std::vector<std::vector<Run>> runs(arms.size());
  for (int seed = 1; seed <= seeds; ++seed) {
    for (std::size_t a = 0; a < arms.size(); ++a) {
      const nlohmann::json result = context.piece(fmt::format("{}-{}-{}", key, arms[a].name, seed), [&] {
        torch::set_num_threads(kTrainingThreads);
        torch::manual_seed(static_cast<std::uint64_t>(seed));
        const Model model = arms[a].make();
        TrainOptions options = arms[a].options;
        options.seed = static_cast<std::uint64_t>(seed);
        return to_json(train(*model, data, options));
      });
      runs[a].push_back(run_from(result));
    }
  }
  return runs;
}

std::vector<double> collect(const std::vector<Run>& runs, const std::function<double(const Run&)>& number_of) {
  std::vector<double> values(runs.size());
  std::transform(runs.begin(), runs.end(), values.begin(), number_of);
  return values;
}

std::vector<double> final_losses(const std::vector<Run>& runs) {
  return collect(runs, [](const Run& run) { return run.final_loss(); });
}

double steps_to(const Run& run, double loss, int window) {
  double sum = 0;
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    sum += run.losses[i];
    const auto w = static_cast<std::size_t>(window);
    if (i >= w) sum -= run.losses[i - w];
    if (i + 1 >= w && sum / window <= loss) return static_cast<double>(i + 1);
  }
  return std::nan("");
}

Series loss_series(const std::string& name, const std::vector<Run>& runs, int window) {
  Series series{name, {}, {}, {}, {}};
  std::size_t steps = 0;
  for (const Run& run : runs) steps = std::max(steps, run.diverged ? 0 : run.losses.size());
  const auto w = static_cast<std::size_t>(window);
  for (std::size_t end = w; end <= steps; end += w) {
    std::vector<double> means;
    for (const Run& run : runs) {
      if (run.diverged || run.losses.size() < end) continue;
      const auto last = run.losses.begin() + static_cast<std::ptrdiff_t>(end);
      means.push_back(mean({last - window, last}));
    }
    const double step = static_cast<double>(end) - (window - 1) / 2.0;  // the middle of what was averaged
    if (means.size() > 1) {
      add_point(series, step, mean_interval(means));
    } else {
      add_point(series, step, {means.at(0), means.at(0), means.at(0)});
    }
  }
  return series;
}

Verdict within(const Interval& interval, double low, double high) {
  if (interval.low >= low && interval.high <= high) return Verdict::kHolds;
  if (interval.high < low || interval.low > high) return Verdict::kRefuted;
  return Verdict::kNotSettled;  // NaN, too
}

Verdict all_of(const std::vector<Verdict>& verdicts) {
  const auto has = [&](Verdict v) { return std::find(verdicts.begin(), verdicts.end(), v) != verdicts.end(); };
  if (has(Verdict::kPartly) || (has(Verdict::kHolds) && has(Verdict::kRefuted))) return Verdict::kPartly;
  if (has(Verdict::kNotSettled) || verdicts.empty()) return Verdict::kNotSettled;
  return verdicts.front();
}

Verdict no_worse(const std::vector<double>& paired, double margin) {
  return within(mean_interval(paired), -kInfinity, margin);
}

std::string text(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "not finite" : value > 0 ? "infinite" : "-infinite";
  return fmt::format("{:.{}g}", value, digits);
}

namespace {

constexpr int kMostDecimals = 6;

// Decimals that show one digit of the interval's width (0.06 has 2) and two of the estimate.
int decimals_of(const Interval& interval) {
  const double width = interval.high - interval.low, size = std::abs(interval.estimate);
  const bool has_width = width > 0 && std::isfinite(width), has_size = size > 0 && std::isfinite(size);
  const double of_width = has_width ? -std::floor(std::log10(width)) : has_size ? 0 : 3;
  const double of_size = has_size ? 1 - std::floor(std::log10(size)) : 0;
  return static_cast<int>(std::clamp(std::max(of_width, of_size), 0.0, static_cast<double>(kMostDecimals)));
}

}  // namespace

std::string text(const Interval& interval) {
  const int decimals = decimals_of(interval);
  const double largest = std::max({std::abs(interval.estimate), std::abs(interval.low), std::abs(interval.high)});
  if (largest > 0 && largest < 0.5 * std::pow(10, -kMostDecimals)) {  // its decimals would all be zeros
    return fmt::format("{:.1e} [{:.1e}, {:.1e}]", interval.estimate, interval.low, interval.high);
  }
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", interval.estimate, decimals, interval.low, decimals, interval.high,
                     decimals);
}

std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

std::string percent(const Interval& share) {
  return fmt::format("{:.1f} [{:.1f}, {:.1f}] %", share.estimate * 100, share.low * 100, share.high * 100);
}

std::string bytes(double count) {
  const char* const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; std::abs(count) >= 1024 && unit + 1 < std::size(units); ++unit) count /= 1024;
  return unit == 0 ? fmt::format("{:.0f} {}", count, units[unit]) : fmt::format("{:.2f} {}", count, units[unit]);
}

std::string milliseconds(double seconds) { return fmt::format("{:.3g} ms", seconds * 1e3); }

void add_point(Series& series, double x, const Interval& y) {
  series.x.push_back(x);
  series.y.push_back(y.estimate);
  series.low.push_back(y.low);
  series.high.push_back(y.high);
}

}  // namespace rmsnorm::lab
