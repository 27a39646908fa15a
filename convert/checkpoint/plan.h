// What is to be done with each tensor, decided before anything is written.
#ifndef RMSNORM_CONVERT_CHECKPOINT_PLAN_H_
#define RMSNORM_CONVERT_CHECKPOINT_PLAN_H_

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert/checkpoint/model.h"
#include "convert/convert.h"

namespace rmsnorm::convert::checkpoint {

enum class Purpose { kConvert, kFold };
enum class Folded { kNone, kBias, kFull };

// W' = W diag(gain), for these outputs.
struct Fold {
  const StoredTensor* weight = nullptr;
  Gain gain = Gain::kWeight;
  Range outputs;
  int chunks = 1;
};

// c' = c + W b, for these outputs; c' = c + W (V b), where the values V of an attention stand before its projection W.
struct BiasTerm {
  const StoredTensor* weight = nullptr;
  Matrix matrix;
  const StoredTensor* norm_bias = nullptr;  // null: `vector`
  Range outputs;
  int chunks = 1;
  std::vector<double> vector = {};
  const StoredTensor* values = nullptr;  // V; null: none
  Matrix values_matrix = {};
};

// Rows of a table become what the norm makes of them.
struct RowNorm {
  const StoredTensor* weight = nullptr;
  const StoredTensor* bias = nullptr;  // null: none
  Gain gain = Gain::kWeight;
  double epsilon = 0;
};

// One tensor of the output: terms, the norm, folds, the scale, the centring, in this order, then one rounding.
struct Action {
  std::string name;
  const StoredTensor* source = nullptr;  // null: zeros
  std::size_t shard = 0;
  std::string dtype;
  tools::Shape shape;
  Matrix matrix;
  std::vector<BiasTerm> terms;
  std::optional<RowNorm> row_norm;
  std::vector<Fold> folds;
  const StoredTensor* scale = nullptr;  // outputs are multiplied by scale / divisor
  double divisor = 1;
  std::vector<Range> centre;   // of the outputs
  std::optional<double> fill;  // everywhere, in place of all that
  bool diagonal = false;       // `fill` on the diagonal only, 0 elsewhere
  bool finite = false;         // a NaN or an infinity is refused
  std::vector<Action> parts;   // if not empty: these, one after the other
  std::optional<Range> rows;   // parts: only these rows of the last axis; `shape` is theirs

  bool copied() const {
    return source != nullptr && terms.empty() && !row_norm && folds.empty() && !scale && centre.empty() && !fill &&
           parts.empty() && dtype == source->dtype;
  }
  std::uint64_t bytes() const;
  std::string what() const;  // "centre", "fold weight, centre": for the report
};

struct SitePlan {
  const NormSite* site = nullptr;
  Folded folded = Folded::kNone;
  std::string note;
};

struct StreamPlan {
  const StreamParts* stream = nullptr;
  bool op = false;
  std::string note;
};

struct Plan {
  std::vector<Action> actions;
  std::vector<SitePlan> sites;
  std::vector<StreamPlan> streams;
  std::vector<std::vector<std::string>> new_biases;  // modules whose class has none, under all their names
  std::vector<std::string> untied;                   // heads
  std::vector<std::string> warnings;
  Json config;
  bool config_changed = false;
  Affine affine = Affine::kKeep;  // never kAuto
  bool one_file = false;          // whatever shards the original has
  std::string output_prefix;      // if not empty: in place of old_prefix in every name but those of untied heads
  std::string old_prefix;
  std::int64_t parameters_added = 0;
  std::int64_t bytes_added = 0;

  std::string output_name(const Action& action) const;
};

// Throws Refusal when the model cannot be converted as the request says.
Plan make_plan(const Model& model, const Request& request, Purpose purpose);

const char* folded_name(Folded folded);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_PLAN_H_
