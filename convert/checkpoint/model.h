// A recipe laid over a checkpoint: every name filled in and looked up, every shape checked.
#ifndef RMSNORM_CONVERT_CHECKPOINT_MODEL_H_
#define RMSNORM_CONVERT_CHECKPOINT_MODEL_H_

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "convert/checkpoint/checkpoint.h"
#include "convert/checkpoint/pattern.h"
#include "convert/checkpoint/recipe.h"

namespace rmsnorm::convert::checkpoint {

inline constexpr std::int64_t kMaxIndex = 1 << 16;  // values of one index

// A run of outputs whose mean is to be 0.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// A weight as matrices [out, in] or [in, out], as it lies in memory.
struct Matrix {
  std::int64_t batch = 1;
  std::int64_t rows = 1;
  std::int64_t cols = 1;
  bool out_rows = true;  // the outputs are the rows
  std::int64_t outputs() const { return out_rows ? rows : cols; }
  std::int64_t inputs() const { return out_rows ? cols : rows; }
};
Matrix matrix_of(Layout layout, const tools::Shape& shape);

// One item, for one set of indices.
struct Part {
  const Item* item = nullptr;
  std::string module;                    // without a prefix
  const StoredTensor* weight = nullptr;  // never null, but for a tied head: then the table
  const StoredTensor* bias = nullptr;
  const StoredTensor* scale = nullptr;
  Matrix matrix;
  std::vector<Range> outputs;  // writers: what is centred; readers: the outputs that read the norm
  int tie = -1;                // index of the tie whose tensor this is
  std::string bias_name;       // where a bias would be; empty: nowhere
  std::string through;         // values: the module that projects them; empty: not said
};

struct NormSite {
  const Site* site = nullptr;
  int stream = -1;  // -1: local
  std::string module;
  std::int64_t width = 0;
  double epsilon = 0;
  std::string exposed;  // why nothing may be folded; empty: it may
  const StoredTensor* weight = nullptr;
  const StoredTensor* bias = nullptr;
  std::vector<Part> readers;
  std::vector<Part> writers;  // local
};

struct StreamParts {
  const Stream* stream = nullptr;
  std::int64_t width = 0;
  std::vector<Part> entry;
  std::vector<Part> writers;
  std::vector<Part> tabulated;           // the table of Stream::tabulated, or nothing
  std::vector<NormSite> tabulated_norm;  // and its norm
};

struct TieParts {
  const TiedNames* tie = nullptr;
  bool tied = false;                        // the head is the table, too
  const StoredTensor* table = nullptr;      // the first name that is there
  std::vector<const StoredTensor*> stored;  // all that are there, the head only while tied
  std::vector<std::string> names;           // under which the table is to be found by a class, with prefixes
  std::string head_name;                    // empty: none
};

class Model {
 public:
  // Without `strict`, tensors that the recipe does not name are collected in `unknown` instead of refused.
  Model(const Recipe& recipe, const Json& config_json, const Checkpoint& checkpoint, bool strict = true);

  const Recipe& recipe;
  const Checkpoint& checkpoint;
  Config config;
  std::vector<StreamParts> streams;
  std::vector<NormSite> sites;  // local ones, too
  std::vector<TieParts> ties;
  std::vector<std::vector<Part>> bias_keys;  // modules, as in the recipe
  std::unordered_set<std::string> inert;     // names of tensors
  std::vector<std::string> unknown;
  bool parameters = true;  // the norms have weights

  // All names under which the module may be known, without a prefix.
  std::vector<std::string> known_as(const std::string& name) const;
  const StoredTensor* find(const std::string& name) const;
  // The writer that may take a bias of this reader, values of an attention whose weights sum to 1: W_o (a v + b) =
  // W_o (a v) + W_o b. Null: there is none, or the values have a bias of their own.
  const Part* projection_of(const Part& reader) const;
  // The prefix before `name` in the file, where it was found.
  std::string prefix_of(const std::string& name, const StoredTensor& found) const;

 private:
  void add_ties();
  void add_stream(const Stream& stream);
  void add_tabulated(const Tabulated& tabulated, StreamParts& parts);
  void add_projections();
  void add_site(const Site& site, int stream, std::int64_t width, const std::map<char, std::string>& counts);
  void add_site_at(const Site& site, int stream, std::int64_t width, const std::map<char, std::string>& counts,
                   const Indices& indices);
  void add_parts(const Item& item, const std::map<char, std::string>& counts, const Indices& bound,
                 std::vector<Part>& parts);
  bool add_part(const Item& item, const Indices& indices, std::vector<Part>& parts);
  void use_table(const Item& item, Part& part);
  void check_writer(Part& part, std::int64_t width);
  void check_local(Part& part, std::int64_t width);
  void check_reader(Part& part, const NormSite& site);
  void classify(bool strict);
  // The names in the files that a pattern of the recipe stands for.
  std::vector<std::string> patterns_of(const std::string& pattern) const;
  bool in_files(const std::string& pattern) const;
  void use(const StoredTensor* tensor);
  void count(const std::string& name);
  [[noreturn]] void refuse_missing(const std::string& name) const;

  const bool strict_;
  std::size_t visits_ = 0;
  std::unordered_map<std::string, const Part*> projections_;  // writers that readers name
  std::unordered_set<std::string> used_;
};

// The configuration's own refusals; R11.
void refuse_by_rules(const Recipe& recipe, const Config& config);
void refuse_converted(const Checkpoint& checkpoint);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_MODEL_H_
