// A language model of one recurrent layer whose gates are normalised, as in the recurrent experiments of the RMSNorm
// paper: the norm of every step stands on W x and on U h.
#ifndef RMSNORM_LAB_MODELS_GRU_H_
#define RMSNORM_LAB_MODELS_GRU_H_

#include "lab/models/model.h"

namespace rmsnorm::lab {

struct GruOptions {
  std::int64_t vocabulary = 256;
  std::int64_t width = 128;
  NormOptions norm;
};

Model make_gru(const GruOptions& options);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_GRU_H_
