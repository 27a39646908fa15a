#include <algorithm>

#include "lab/experiments/experiment.h"

namespace rmsnorm::lab {

const std::vector<const Experiment*>& experiments() {
  static const std::vector<const Experiment*> list = [] {
    std::vector<const Experiment*> all = {
#define RMSNORM_LAB_EXPERIMENT(name) &name,
#include "lab/experiments/list.inc"
#undef RMSNORM_LAB_EXPERIMENT
    };
    std::sort(all.begin(), all.end(), [](const Experiment* a, const Experiment* b) { return a->number < b->number; });
    return all;
  }();
  return list;
}

}  // namespace rmsnorm::lab
