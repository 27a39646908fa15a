// What experiments share: times, paired trainings, ratios, verdicts and how numbers are written.
#ifndef RMSNORM_LAB_EXPERIMENTS_SUPPORT_H_
#define RMSNORM_LAB_EXPERIMENTS_SUPPORT_H_

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/experiments/experiment.h"
#include "lab/models/model.h"
#include "lab/statistics/statistics.h"
#include "lab/train/train.h"

namespace rmsnorm::lab {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Threads of everything that is timed and does not say otherwise.
inline constexpr int kThreads = 2;

// Threads of a training that is judged by its losses: at these widths two runs side by side (`run --jobs 2`) get more
// done than two threads.
inline constexpr int kTrainingThreads = 1;

// ---- Times

struct Variant {
  std::string name;
  std::function<void()> run;
};

// The seconds of every call: [variant][round]. A round calls each variant once, and the order turns by one from round
// to round, so that a slow moment of the machine meets all of them. `warm_up` rounds before are not counted.
std::vector<std::vector<double>> interleaved_seconds(const std::vector<Variant>& variants, int rounds, int warm_up = 2);

// The same by the names of the variants, as a piece keeps it.
nlohmann::json named_seconds(const std::vector<Variant>& variants, int rounds);

// Each value over its partner: a[i] / b[i].
std::vector<double> ratios(const std::vector<double>& a, const std::vector<double>& b);
std::vector<double> differences(const std::vector<double>& a, const std::vector<double>& b);  // a[i] - b[i]

// a relative to b, of paired times: the median of the ratios, with its interval.
Interval relative(const std::vector<double>& a, const std::vector<double>& b);

// What several process starts measured: [start][round]. Rounds of a start are not independent of each other, so each
// start gives one number, its median, and intervals are those over the starts.
using Starts = std::vector<std::vector<double>>;

// The list at `path` ("/train-64/none/seconds") in the piece of every start.
Starts of_starts(const std::vector<nlohmann::json>& pieces, const std::string& path);
Starts ratios(const Starts& a, const Starts& b);
Interval median_interval(const Starts& starts);
Interval relative(const Starts& a, const Starts& b);
double median(const Starts& starts);

// Of qualities, by seed. Values and pairs with a number that is not finite (a run diverged, a loss was never reached)
// are left out; with fewer than two left the interval is the whole line, and decides nothing. a relative to b, of
// paired positive qualities (steps, losses): the geometric mean of the ratios, with its interval.
Interval relative_mean(const std::vector<double>& a, const std::vector<double>& b);

// The mean, and the mean of a[i] - b[i], with their intervals.
Interval finite_mean(const std::vector<double>& values);
Interval mean_difference(const std::vector<double>& a, const std::vector<double>& b);

// The saving 1 - r of a ratio r, and both ends.
Interval saving(const Interval& ratio);

// Amdahl: time after / time before, when the part that takes `share` of the time before takes `part_ratio` of what it
// took.
double amdahl(double share, double part_ratio);

// ---- Memory

// Bytes of tensors on the CPU: every allocation of PyTorch's CPU allocator while a meter lives, from all threads.
// Scratch memory that libraries behind PyTorch take from malloc is not in it, nor is what was allocated before. One
// meter at a time.
class AllocationMeter {
 public:
  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  std::int64_t live() const;  // allocated since the meter began and not yet freed
  std::int64_t peak() const;  // the most that was live
  void reset_peak();          // to what is live
};

// ---- Trainings

// "layer_norm-eager": an arm's name, fit for a piece's key.
std::string norm_name(const NormOptions& norm);

// The step that times and bytes are measured on, with AdamW and clipping, over and over on one batch. The learning rate
// is so small that the weights hardly move: what is timed stays the same.
class TrainingStep {
 public:
  TrainingStep(Model model, Batch batch);
  void operator()();
  const Model& model() const { return model_; }

 private:
  Model model_;
  Batch batch_;
  std::shared_ptr<torch::optim::AdamW> optimizer_;  // an optimiser cannot be copied, a std::function must be
};

// One side of a paired comparison. The seed sets both the initial values (torch::manual_seed before `make`) and the
// batches, so arms whose models draw the same random numbers start from the same point and see the same data.
struct Arm {
  std::string name;  // part of the piece's key: a-z, 0-9, _ and -
  std::function<Model()> make;
  TrainOptions options;  // .seed is set from the run's
};

struct Run {
  std::vector<double> losses;  // of every training step
  std::vector<double> gradient_norms;
  std::vector<Evaluation> evaluations;
  bool diverged = false;

  double final_loss() const;  // on the held-out data; NaN when the run diverged
  double final_accuracy() const;
};

// Trains every arm with the seeds 1..seeds, arms interleaved. [arm][seed - 1]. Every run is a piece,
// "<key>-<arm>-<seed>".
std::vector<std::vector<Run>> paired_runs(Context& context, const std::string& key, const std::vector<Arm>& arms,
                                          const Data& data, int seeds);

// One number of every run.
std::vector<double> collect(const std::vector<Run>& runs, const std::function<double(const Run&)>& number);
std::vector<double> final_losses(const std::vector<Run>& runs);

// The first step (from 1) at which the mean of the last `window` training losses is at most `loss`; NaN: never.
double steps_to(const Run& run, double loss, int window);

// Mean and interval of the training loss over runs, smoothed over `window` steps, as a series for a plot. Diverged runs
// are left out.
Series loss_series(const std::string& name, const std::vector<Run>& runs, int window);

// ---- Verdicts

// "The quantity lies in [low, high]": holds when its interval lies inside, is refuted when the interval lies outside,
// and not settled when it reaches over an end. Use kInfinity for an open end.
Verdict within(const Interval& interval, double low, double high);

// One claim tested in several places: what all of them say; kPartly where it holds in some and is refuted in others;
// otherwise not settled.
Verdict all_of(const std::vector<Verdict>& verdicts);

// "a is no worse than b": the 95 % interval of the paired differences a - b (losses: smaller is better) against a
// margin that was stated before.
Verdict no_worse(const std::vector<double>& differences, double margin);

// ---- How numbers are written

std::string text(double value, int digits = 3);  // significant digits
std::string text(const Interval& interval);      // "1.04 [1.01, 1.07]", decimals from the interval's width
std::string percent(double share);               // "9.5 %"
std::string percent(const Interval& share);      // "9.5 [8.1, 10.9] %"
std::string bytes(double count);                 // "12.3 MiB"
std::string milliseconds(double seconds);        // "3.21 ms"

// A point with an interval put at the end of a series.
void add_point(Series& series, double x, const Interval& y);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_SUPPORT_H_
