// Norms whose hidden axis is split over the ranks of MPI. Every rank holds its columns of every token; what travels is
// one f64 number a token and round. The program proves that the ranks together compute the whole row, within the
// budgets of docs/numbers.md, and returns 1 if they do not.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "reference/budgets.h"
#include "reference/layer_norm_backward.h"
#include "reference/rms_norm.h"
#include "reference/ulp.h"
#include "reference/values.h"
#include "rmsnorm/rmsnorm.hpp"

namespace {

using rmsnorm::View;
using rmsnorm::reference::Quad;
using rmsnorm::reference::Values;

constexpr int kTokens = 16, kCols = 4096;
constexpr double kEpsilon = 1e-6;
constexpr double kGradientBudget = 4;  // dx in f32: ulps of the largest term of its row

using Numbers = std::vector<double>;
using Floats = std::vector<float>;

int rank_count() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

// What travelled.
struct Traffic {
  int rounds = 0;
  std::int64_t bytes = 0;  // from this rank to all others
};

// Gathers every rank's numbers and adds them in rank order: the same bits on all ranks, which a reduction in an order
// of MPI's choice does not promise.
Numbers total(const Numbers& mine, Traffic* traffic) {
  const int count = static_cast<int>(mine.size()), ranks = rank_count();
  Numbers parts(mine.size() * static_cast<std::size_t>(ranks)), sums(mine.size());
  MPI_Allgather(mine.data(), count, MPI_DOUBLE, parts.data(), count, MPI_DOUBLE, MPI_COMM_WORLD);
  rmsnorm::add_rank_sums(sums.data(), parts.data(), ranks, count);
  ++traffic->rounds;
  traffic->bytes += static_cast<std::int64_t>(sizeof(double)) * count * (ranks - 1);
  return sums;
}

View sums(Numbers& numbers, int first = 0) { return rmsnorm::vector(numbers.data() + first, kTokens); }

// Every rank makes all columns, so that it can judge its own; it hands only these to the library.
struct Problem {
  int begin, cols;  // this rank's
  Floats x, dy, weight;
  Floats out, dx, dweight;  // of this rank's columns

  explicit Problem(int rank)
      : begin(static_cast<int>(std::int64_t{kCols} * rank / rank_count())),
        cols(static_cast<int>(std::int64_t{kCols} * (rank + 1) / rank_count()) - begin),
        x(make(Values::kOffset, 1, kTokens)),
        dy(make(Values::kNormal, 2, kTokens)),
        weight(make(Values::kWeight, 3, 1)),
        out(static_cast<std::size_t>(kTokens) * static_cast<std::size_t>(cols)),
        dx(out.size()),
        dweight(static_cast<std::size_t>(cols)) {}

  static Floats make(Values values, std::uint64_t seed, int rows) {
    Floats all(static_cast<std::size_t>(rows) * kCols);
    for (int r = 0; r < rows; ++r) {
      rmsnorm::reference::fill_row(all.data() + r * kCols, values, RN_F32, seed, rmsnorm::reference::Stream::kX, r,
                                   kCols);
    }
    return all;
  }

  View slice(const Floats& all) const { return View(all.data() + begin, {kTokens, cols}, {kCols, 1}); }
  View own(Floats& mine) const { return rmsnorm::matrix(mine.data(), kTokens, cols); }
  View my_weight() const { return rmsnorm::vector(weight.data() + begin, cols); }
};

// [rms_norm]
void rms_norm(Problem& p, Traffic* forward, Traffic* backward) {
  Numbers mine(kTokens);
  rmsnorm::rms_sum_squares(sums(mine), p.slice(p.x));
  Numbers squares = total(mine, forward);
  rmsnorm::rms_norm_apply(p.own(p.out), {}, p.slice(p.x), sums(squares), kCols, p.my_weight(), {},
                          {.epsilon = kEpsilon});

  rmsnorm::rms_backward_sum(sums(mine), p.slice(p.dy), p.slice(p.x), p.my_weight());
  Numbers products = total(mine, backward);
  rmsnorm::RmsNormBackwardOptions options;
  options.epsilon = kEpsilon;
  rmsnorm::rms_norm_backward_apply(p.own(p.dx), rmsnorm::vector(p.dweight.data(), p.cols), {}, p.slice(p.dy),
                                   p.slice(p.x), sums(squares), sums(products), kCols, p.my_weight(), options);
}
// [end]

// [layer_norm]
void layer_norm(Problem& p, Traffic* forward, Traffic* backward) {
  Numbers mine(kTokens);
  rmsnorm::layer_sum(sums(mine), p.slice(p.x));
  Numbers sum = total(mine, forward);
  rmsnorm::layer_sum_squares(sums(mine), p.slice(p.x), sums(sum), kCols);
  Numbers squares = total(mine, forward);
  rmsnorm::layer_norm_apply(p.own(p.out), {}, {}, p.slice(p.x), sums(sum), sums(squares), kCols, p.my_weight(), {},
                            {.epsilon = kEpsilon});

  Numbers both(2 * kTokens);  // two numbers a token, in one round
  rmsnorm::layer_backward_sums(sums(both), sums(both, kTokens), p.slice(p.dy), p.slice(p.x), sums(sum), kCols,
                               p.my_weight());
  Numbers totals = total(both, backward);
  rmsnorm::LayerNormBackwardOptions options;
  options.epsilon = kEpsilon;
  rmsnorm::layer_norm_backward_apply(p.own(p.dx), rmsnorm::vector(p.dweight.data(), p.cols), {}, p.slice(p.dy),
                                     p.slice(p.x), sums(sum), sums(squares), sums(totals), sums(totals, kTokens), kCols,
                                     p.my_weight(), options);
}
// [end]

struct Errors {
  double forward = 0, backward = 0;  // the largest, in ulps
};

// Compares this rank's columns with those of the whole row, computed in 113-bit arithmetic.
Errors judge(const Problem& p, bool layer) {
  using namespace rmsnorm::reference;
  const std::vector<double> weight(p.weight.begin(), p.weight.end());
  const Parameters parameters{weight.data(), nullptr, 0};
  rn_rms_norm_options options = rn_rms_norm_defaults();
  options.epsilon = kEpsilon;
  Errors worst;
  std::vector<Quad> exact(kCols);
  for (int token = 0; token < kTokens; ++token) {
    const auto row = [&](const Floats& all) {
      return std::vector<double>(all.begin() + token * kCols, all.begin() + (token + 1) * kCols);
    };
    const std::vector<double> x = row(p.x), dy = row(p.dy);
    GradientRow<Quad> gradient;
    if (layer) {
      ::rmsnorm::reference::layer_norm(exact.data(), x.data(), kCols, parameters, kEpsilon);
      gradient = layer_norm_backward<Quad>(dy.data(), x.data(), kCols, parameters, kEpsilon);
    } else {
      ::rmsnorm::reference::rms_norm(exact.data(), x.data(), kCols, RN_F32, parameters, options);
      gradient = rms_norm_backward<Quad>(dy.data(), x.data(), kCols, parameters, options);
    }
    for (int i = 0; i < p.cols; ++i) {
      const auto at = static_cast<std::size_t>(token * p.cols + i);
      const auto col = static_cast<std::size_t>(p.begin + i);
      const double out = static_cast<double>(p.out[at]), dx = static_cast<double>(p.dx[at]);
      worst.forward = std::max(worst.forward, ulp_distance(RN_F32, out, exact[col]));
      worst.backward = std::max(worst.backward, ulp_distance(RN_F32, dx, gradient.dx[col], gradient.largest));
    }
  }
  return worst;
}

double largest_of_all(double mine) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

// Prints a line on rank 0; whether the budget holds.
bool report(int rank, const char* name, const Traffic& traffic, double mine, double budget) {
  const double error = largest_of_all(mine);
  if (rank == 0) {
    std::printf("%-20s %6d %20.1f %16.2f %8.2f\n", name, traffic.rounds, static_cast<double>(traffic.bytes) / kTokens,
                error, budget);
  }
  return error <= budget;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  bool good = true;
  {
    Problem p(rank);
    if (rank == 0) {
      std::printf("%d tokens of %d columns, f32, mean 10^4 deviations; ranks: %d\n", kTokens, kCols, rank_count());
      std::printf("%-20s %6s %20s %16s %8s\n", "", "rounds", "bytes sent per token", "largest ulp", "budget");
    }
    Traffic rms_forward, rms_backward, layer_forward, layer_backward;
    rms_norm(p, &rms_forward, &rms_backward);
    const Errors rms = judge(p, false);
    layer_norm(p, &layer_forward, &layer_backward);
    const Errors layer = judge(p, true);
    good &= report(rank, "rms_norm", rms_forward, rms.forward, rmsnorm::reference::kRmsNormF32);
    good &= report(rank, "rms_norm_backward", rms_backward, rms.backward, kGradientBudget);
    good &= report(rank, "layer_norm", layer_forward, layer.forward, rmsnorm::reference::kLayerNormF32);
    good &= report(rank, "layer_norm_backward", layer_backward, layer.backward, kGradientBudget);
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
