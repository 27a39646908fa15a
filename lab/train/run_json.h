// What a run was asked for and what it found, as JSON: for logs and checkpoints.
#ifndef RMSNORM_LAB_TRAIN_RUN_JSON_H_
#define RMSNORM_LAB_TRAIN_RUN_JSON_H_

#include <nlohmann/json.hpp>

#include "lab/train/train.h"

namespace rmsnorm::lab {

// Everything that decides the numbers of a run; not where they are written.
nlohmann::ordered_json to_json(const TrainOptions& options);

// Numbers that are not finite become null, which JSON has instead.
nlohmann::ordered_json to_json(const Step& step);
nlohmann::ordered_json to_json(const Evaluation& evaluation);

Step step_from_json(const nlohmann::json& json);
Evaluation evaluation_from_json(const nlohmann::json& json);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_RUN_JSON_H_
