// What is done to a trained model: a norm is replaced in place, or the project's own converter converts all of it.
#ifndef RMSNORM_LAB_EXPERIMENTS_SURGERY_H_
#define RMSNORM_LAB_EXPERIMENTS_SURGERY_H_

#include <filesystem>
#include <nlohmann/json.hpp>

#include "convert/convert.h"
#include "lab/models/model.h"

namespace rmsnorm::lab {

// Puts another norm in the place of `norm`. The weight is kept, and what else the new norm has starts anew.
void replace_norm(NormImpl& norm, const NormOptions& options);

// Gives `to` the numbers of `from`'s parameters of the same names; those that `from` lacks stay.
void copy_parameters(const ModelImpl& from, ModelImpl& to);

// Saves `model` (f32) with `config` as its config.json in `folder`/layer_norm, converts that into `folder`/rms_norm,
// and loads the result into `twin`: the same architecture with RMSNorm. What was in the two folders goes. Throws where
// a parameter of `twin` is missing, or where the result has a tensor, other than zeros, that `twin` has no place for.
// Returns the seconds of the conversion, reading and writing included.
double make_twin(const ModelImpl& model, const nlohmann::json& config, convert::Affine affine,
                 const std::filesystem::path& folder, ModelImpl& twin);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_SURGERY_H_
