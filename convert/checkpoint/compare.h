// The arithmetic of verify: two linear maps, one of them centred or folded, on random vectors.
#ifndef RMSNORM_CONVERT_CHECKPOINT_COMPARE_H_
#define RMSNORM_CONVERT_CHECKPOINT_COMPARE_H_

#include <string>
#include <vector>

#include "convert/checkpoint/model.h"

namespace rmsnorm::convert::checkpoint {

using Vectors = std::vector<std::vector<double>>;

// Largest error found, in units of what one rounding of each stored value may cause; above 1 is a failure.
struct Worst {
  double ratio = 0;
  std::string where;
  void take(double difference, double bound, const std::string& place);
};

// One side of a comparison: y = scale * (W x + b).
struct Linear {
  const StoredTensor* weight = nullptr;
  const StoredTensor* bias = nullptr;
  const StoredTensor* scale = nullptr;
  Matrix matrix;
};

struct Comparison {
  Linear original;
  Linear converted;
  std::vector<Range> centred;          // outputs whose mean the original's result loses
  Range outputs;                       // compared
  const NormSite* row_norm = nullptr;  // tables: each row of the original becomes its LayerNorm first
  std::size_t memory = 0;
  bool carried = false;  // each value must be one rounding of the exact one and what those before it lost
};

// converted(x') against M original(x), for each pair of vectors.
void compare_linear(const Comparison& comparison, const Vectors& x, const Vectors& converted_x, Worst& worst);

// Rows of a table, each centred; every element is compared. Also for biases, which are tables of one row.
void compare_table(const Comparison& comparison, Worst& worst);

// The mean of each column over each range, against 8 units of its root mean square.
void check_centred(const Linear& linear, const std::vector<Range>& ranges, std::size_t memory, Worst& worst);

bool same_bytes(const StoredTensor& x, const StoredTensor& y, std::size_t memory);

// Uniform numbers of non-zero mean; the same for the same name.
std::vector<double> random_vector(const std::string& name, int index, std::size_t size);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_COMPARE_H_
