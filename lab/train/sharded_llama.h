// The Llama of models/llama.h with its hidden axis split over the ranks: each has some columns of the residual stream,
// and of every matrix the rows or columns that meet them.
//
//   from the stream   y = sum over ranks of W[:, mine] x[mine]     all ranks have all of y
//   to the stream     y[mine] = W[mine, :] x                       all ranks have all of x
//
// Between the two, in attention and SwiGLU, all ranks compute the same: what is split is the stream with its norms and
// the matrices that touch it, not the heads.
#ifndef RMSNORM_LAB_TRAIN_SHARDED_LLAMA_H_
#define RMSNORM_LAB_TRAIN_SHARDED_LLAMA_H_

#include "lab/models/llama.h"
#include "lab/train/ranks.h"

namespace rmsnorm::lab {

// `whole` is a model of the same options, of which the slices are taken. Pre-norm, no QK-norm, no recomputation.
// Parameters have the names of the whole model's.
Model make_sharded_llama(const LlamaOptions& options, const ModelImpl& whole, Ranks& ranks);

// Fills `whole` with the slices of all ranks.
void collect_slices(const ModelImpl& sharded, Ranks& ranks, ModelImpl& whole);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_TRAIN_SHARDED_LLAMA_H_
