#include "lab/train/run_json.h"

#include <limits>

namespace rmsnorm::lab {

nlohmann::ordered_json to_json(const TrainOptions& options) {
  return {{"steps", options.steps},
          {"batch", options.batch},
          {"accumulation", options.accumulation},
          {"learning_rate", options.learning_rate},
          {"final_share", options.final_share},
          {"warm_up", options.warm_up},
          {"weight_decay", options.weight_decay},
          {"beta1", options.beta1},
          {"beta2", options.beta2},
          {"clip", options.clip},
          {"autocast", options.autocast},
          {"seed", options.seed},
          {"evaluate_every", options.evaluate_every},
          {"evaluate_parts", options.evaluate_parts}};
}

nlohmann::ordered_json to_json(const Step& step) {
  return {{"step", step.step}, {"loss", step.loss}, {"gradient_norm", step.gradient_norm}, {"seconds", step.seconds}};
}

nlohmann::ordered_json to_json(const Evaluation& evaluation) {
  return {{"step", evaluation.step}, {"held_out_loss", evaluation.loss}, {"accuracy", evaluation.accuracy}};
}

namespace {

double number(const nlohmann::json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

}  // namespace

Step step_from_json(const nlohmann::json& json) {
  return {json.at("step").get<std::int64_t>(), number(json.at("loss")), number(json.at("gradient_norm")),
          number(json.at("seconds"))};
}

Evaluation evaluation_from_json(const nlohmann::json& json) {
  return {json.at("step").get<std::int64_t>(), number(json.at("held_out_loss")), number(json.at("accuracy"))};
}

}  // namespace rmsnorm::lab
