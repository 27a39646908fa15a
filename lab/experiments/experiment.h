// An experiment: a claim, a design and a rule for the verdict, stated before the code, and the code.
#ifndef RMSNORM_LAB_EXPERIMENTS_EXPERIMENT_H_
#define RMSNORM_LAB_EXPERIMENTS_EXPERIMENT_H_

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/report/document.h"

namespace rmsnorm::lab {

// Smoke: it runs, and its numbers are sane (all fourteen within 3 minutes on 2 cores). Quick: the smallest size at which
// the question has a meaning, 5 paired seeds (all within 15 minutes). Full: 8 seeds, hours.
enum class Scale { kSmoke, kQuick, kFull };

class Context {
 public:
  Context(Scale scale, std::filesystem::path folder, bool progress);

  Scale scale() const { return scale_; }
  // One of three values.
  template <class T>
  T choose(T smoke, T quick, T full) const {
    return scale_ == Scale::kSmoke ? smoke : scale_ == Scale::kQuick ? quick : full;
  }
  int seeds() const { return choose(2, 5, 8); }

  // Runs `work` once and keeps what it returns in the folder, under `key` (a-z, 0-9, _ and -). A run that is taken up
  // again finds it there. Everything that takes more than a second is a piece, and every number in the report comes
  // from one.
  nlohmann::json piece(const std::string& key, const std::function<nlohmann::json()>& work);

  // A folder for checkpoints of the piece that runs.
  std::filesystem::path scratch() const;

 private:
  Scale scale_;
  std::filesystem::path folder_;
  bool progress_;
};

struct Experiment {
  int number;          // of the specification's table
  std::string name;    // a stem: "cost", "step_share"
  std::string title;   // of its page
  std::string claim;   // with its source
  std::string design;  // what is run
  std::string rule;    // what makes the verdict
  Page (*run)(Context& context);
};

// In the order of their numbers. Each file experiments/<name>.cc defines `const Experiment k<Name>`, named once in
// experiments.cc.
const std::vector<const Experiment*>& experiments();

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_EXPERIMENT_H_
