// Text from a model of bytes.
#ifndef RMSNORM_LAB_TRAIN_GENERATE_H_
#define RMSNORM_LAB_TRAIN_GENERATE_H_

#include <cstdint>
#include <string>

#include "lab/models/model.h"

namespace rmsnorm::lab {

struct GenerateOptions {
  std::int64_t tokens = 200;   // to add
  std::int64_t context = 256;  // tokens that the model sees; earlier ones are forgotten
  double temperature = 0;      // of the softmax that is drawn from; 0: always the likeliest token
  std::int64_t top = 0;        // draw from this many likeliest tokens; 0: from all
  std::uint64_t seed = 1;      // of the draws
};

// The continuation of `prompt`, without it. Bytes, which may end inside a character of UTF-8. The model keeps keys and
// values, so that it reads each token once, until its context is full: from there on every token moves by one place at
// each step, and the whole context is read again.
std::string generate(ModelImpl& model, const std::string& prompt, const GenerateOptions& options);

// The last `context` bytes of a text as tokens [1, time].
torch::Tensor tokens_of(const std::string& text, std::int64_t context);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_GENERATE_H_
