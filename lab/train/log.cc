#include "lab/train/log.h"

#include <nlohmann/json.hpp>

#include "lab/train/run_json.h"
#include "tools/error.h"

namespace rmsnorm::lab {

Log::Log(const TrainOptions& options, const TrainResult& before) : options_(options), path_(options.log.string()) {
  out_.open(path_, std::ios::trunc);
  if (!out_) tools::fail_errno(path_, "write");
  line(nlohmann::ordered_json({{"options", to_json(options)}, {"identity", options.identity}}).dump());
  std::size_t evaluation = 0;
  for (const Step& step : before.steps) {
    write(step);
    for (; evaluation < before.evaluations.size() && before.evaluations[evaluation].step <= step.step; ++evaluation) {
      write(before.evaluations[evaluation]);
    }
  }
}

void Log::write(const Step& step) {
  nlohmann::ordered_json json = to_json(step);
  json["learning_rate"] = learning_rate_at(options_, step.step - 1);
  line(json.dump());
}

void Log::write(const Evaluation& evaluation) { line(to_json(evaluation).dump()); }

void Log::end(const TrainResult& result) {
  line(nlohmann::ordered_json({{"end", result.diverged ? "diverged" : "finished"}}).dump());
}

void Log::line(const std::string& text) {
  out_ << text << '\n' << std::flush;
  if (!out_) tools::fail_errno(path_, "write");
}

}  // namespace rmsnorm::lab
