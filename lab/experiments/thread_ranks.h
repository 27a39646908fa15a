// The ranks of a run as threads of this process: what is counted and compared needs no MPI.
#ifndef RMSNORM_LAB_EXPERIMENTS_THREAD_RANKS_H_
#define RMSNORM_LAB_EXPERIMENTS_THREAD_RANKS_H_

#include <functional>

#include "lab/train/ranks.h"

namespace rmsnorm::lab {

// Runs `work` once in each of `count` threads, with the thread's rank. If it throws in one of them all end, and the
// first exception is thrown here. torch::set_num_threads is left alone: each rank takes as many.
void run_ranks(int count, const std::function<void(Ranks&)>& work);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_THREAD_RANKS_H_
