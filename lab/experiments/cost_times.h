// The times of experiment 1.
#ifndef RMSNORM_LAB_EXPERIMENTS_COST_TIMES_H_
#define RMSNORM_LAB_EXPERIMENTS_COST_TIMES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "lab/experiments/experiment.h"

namespace rmsnorm::lab {

std::vector<std::int64_t> cost_widths(Scale scale);

// The shape that the practice report gives, and how many norms follow each other there.
inline constexpr std::int64_t kLayerRows = 512, kLayerWidth = 1024;
std::int64_t cost_layers(Scale scale);

// {"cells": {"<regime>": {"<norm>": {"<width>": ns per element}}}, "layers": {"<norm>-<code>": ms for all layers}}
// Regimes: scalar, eager, native, in_cache, from_memory. Norms: layer_norm, rms_norm and, eager, rms_norm_l2.
nlohmann::json measure_cost(Scale scale);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_COST_TIMES_H_
