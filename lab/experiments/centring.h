// The rules of experiment 6.
#ifndef RMSNORM_LAB_EXPERIMENTS_CENTRING_H_
#define RMSNORM_LAB_EXPERIMENTS_CENTRING_H_

#include "lab/experiments/support.h"

namespace rmsnorm::lab {

// The mean of a row takes mean(x)^2 / mean(x^2) of its square; of a direction drawn at random, 1/d on average.
inline constexpr double kNegligibleMeanShare = 0.01;
// How far from the sphere a row may end and still be said to lie on it.
inline constexpr double kOnSphere = 0.01;
inline constexpr double kOnSphereExactly = 1e-12;  // f64, no epsilon, no weight

// "Training centres the activations": the share at the end over the share at the start.
Verdict self_centring(const Interval& end_over_start);

// "Centred, so that subtracting the mean changes nothing to speak of": the share of the norm that has most of it.
Verdict mean_negligible(const Interval& largest_share);

// "Re-scaled and re-centred inputs and weights leave the output as the table says."
Verdict table_verdict(int as_in_paper, int otherwise, int unclear);

// "Every row lands on the sphere of radius sqrt(d)": | |y| / sqrt(d) - 1 |, by the bare formula and as a model uses it.
Verdict on_sphere(double bare, double in_model);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_CENTRING_H_
