// What a family of models looks like, as data: docs/recipes.md describes the JSON that is read here.
#ifndef RMSNORM_CONVERT_CHECKPOINT_RECIPE_H_
#define RMSNORM_CONVERT_CHECKPOINT_RECIPE_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/checkpoint/json_text.h"
#include "convert/names.h"
#include "convert/refusal.h"

namespace rmsnorm::convert::checkpoint {

inline constexpr int kRecipeFormat = 1;
inline constexpr std::size_t kMaxRecipeBytes = std::size_t{256} << 10;

enum class Layout { kLinear, kConv1d, kConv, kTable };  // [out, in], [in, out], [out, in, k..], [rows, d]
enum class Gain { kWeight, kOnePlusWeight, kRoundedOnePlusWeight };
enum class Side { kInput, kOutput, kResidual };

inline constexpr Name<Layout> kLayoutList[] = {
    {"linear", Layout::kLinear}, {"conv1d", Layout::kConv1d}, {"conv", Layout::kConv}, {"table", Layout::kTable}};
inline constexpr Names<Layout> kLayouts = kLayoutList;
inline constexpr Name<Gain> kGainList[] = {{"weight", Gain::kWeight},
                                           {"one_plus_weight", Gain::kOnePlusWeight},
                                           {"rounded_one_plus_weight", Gain::kRoundedOnePlusWeight}};
inline constexpr Names<Gain> kGains = kGainList;
inline constexpr Name<Side> kSideList[] = {
    {"input", Side::kInput}, {"output", Side::kOutput}, {"residual", Side::kResidual}};
inline constexpr Names<Side> kSides = kSideList;

// Rows from/of .. to/of of a tensor.
struct Rows {
  int from = 0;
  int to = 1;
  int of = 1;
};

// A tensor that reads or writes a stream, with its bias. Names are patterns, see pattern.h.
struct Item {
  std::string module;  // for messages and programs
  std::string weight;
  std::string bias;  // empty: it never has one
  bool optional = false;
  Layout layout = Layout::kLinear;
  Rows rows;                  // readers: only these read the norm
  int chunks = 1;             // readers: the input is so many copies of the width side by side
  bool bias_cancels = false;  // readers: a bias added here changes no output
  std::string groups;         // local writers: a config key or number; rows are [groups, parts, width]
  int parts = 1;
  int part = 0;
  std::string scale;    // writers: the LayerScale vector behind it
  std::string through;  // readers, values of an attention: the writer that projects them
  Json when;            // null: always
};

struct Site {
  std::string norm;
  bool optional = false;
  int first = 0;  // the first value of the norm's own index
  Gain gain = Gain::kWeight;
  std::string width;  // empty: the stream's
  Json epsilon;       // a config key or a number
  std::vector<Item> readers;
  std::vector<Item> writers;  // local sites only
  std::string exposed;        // why nothing may be folded; empty: it may
  std::string exposed_by;     // ... only where the files hold a tensor of this name; empty: always
  Json when;
};

// A norm behind a table of tokens alone: a program without that norm can have its outputs as the table.
struct Tabulated {
  std::vector<Item> table;  // one
  std::vector<Site> norm;   // one, without readers
};

struct EntryOp {
  std::string at;  // a module; empty: no program can centre here
  Side side = Side::kInput;
};

struct Stream {
  std::string name;
  std::string width;
  std::map<char, std::string> counts;
  std::vector<Item> entry;
  EntryOp op;
  Tabulated tabulated;  // empty: no such norm
  bool prefer_op = false;
  std::string why_op;  // why weights cannot centre the entry; empty: they can
  std::vector<Site> sites;
  std::vector<Item> writers;
  Json when;
};

struct TiedNames {
  std::string table;
  std::vector<std::string> copies;  // other names of the same tensor
  std::string head;
  std::string flag;  // of the configuration
  Json when;
};

struct BiasKey {
  std::string key;  // of the configuration; true makes the class give these modules biases
  std::vector<Item> modules;
};

struct Rule {
  RefusalCode code = RefusalCode::kUnsupportedOption;
  std::string site;
  std::string text;
  Json when;
};

// What a tensor of a target's class is made of: one of these.
struct TargetPiece {
  std::string name;                // a module or a tensor of the recipe, as the whole is
  std::int64_t from = 0;           // its rows
  std::optional<std::int64_t> to;  // nothing: to the end
  std::string zeros;               // configuration key or number: so many rows of zeros
  std::string identity;            // configuration key or number: the identity matrix of this size
};

struct TargetTensor {
  std::string name;
  bool module = false;  // .weight, and .bias where there is one
  std::vector<TargetPiece> of;
  Json when;
};

struct TargetConfig {
  Json when;
  Json set;  // path -> value
};

// Another class that computes the converted model.
struct TargetRule {
  Json when;
  std::string unless_text;  // why not, where `when` does not hold
  std::vector<Rule> refusals;
  std::vector<Rule> warnings;
  Affine affine = Affine::kKeep;      // what `auto` is
  std::vector<std::string> ones;      // tensors of ones to add
  Json set;                           // config keys; a value {"key": K} copies that of K
  std::vector<std::string> remove;    // config keys
  std::vector<TargetTensor> tensors;  // if not empty: these, in one file, in place of the original's names
  std::vector<std::string> left_out;  // tensors that the class has no place for
  std::vector<TargetConfig> config;   // if not empty: the whole configuration
};

// Layers behind the last that the class has, which it does not load: names with the index {i}.
struct FurtherLayers {
  std::string names;
  std::string count;  // a config key or number
};

inline constexpr std::size_t kMaxPrefixes = 32;
inline constexpr std::size_t kMaxRenames = 32;
inline constexpr std::size_t kMaxNameLength = 1024;  // of a name that renames make

struct Recipe {
  std::string family;
  std::vector<std::string> model_types;
  Json select;
  bool rms = false;  // the norms are RMSNorm already: `fold` only
  std::vector<std::string> prefixes;
  std::vector<std::pair<std::string, std::string>> renames;
  Json defaults = Json::object();
  Json no_parameters;  // null: the norms have weights
  std::vector<TiedNames> ties;
  std::vector<Stream> streams;
  std::vector<Site> local;  // norms apart from the streams, with writers of their own
  std::map<char, std::string> local_counts;
  std::vector<BiasKey> bias_keys;
  std::vector<std::string> inert;
  std::optional<FurtherLayers> further;
  std::vector<Rule> refusals;
  std::vector<Rule> warnings;
  std::map<std::string, TargetRule> targets;
};

// Reads a recipe; `name` is for messages. Unknown keys, wrong types and values are errors that name them.
Recipe parse_recipe(std::string_view text, const std::string& name);

// Values of the configuration, with the recipe's defaults behind it. Keys are dotted paths; `a|b` means a, else b.
class Config {
 public:
  Config(const Json& config, const Json& defaults) : config_(config), defaults_(defaults) {}
  Json value(std::string_view key) const;  // null when neither has it
  bool in_file(std::string_view key) const;
  bool flag(const std::string& key) const;  // false when neither has it; R12 for what is no boolean
  std::int64_t integer(const std::string& key_or_number, std::string_view what) const;
  double epsilon(const Json& key_or_number, std::string_view site) const;
  const Json& json() const { return config_; }

 private:
  const Json& config_;
  const Json& defaults_;
};

// True if the configuration meets the condition; null is always met.
bool holds(const Json& condition, const Config& config);

// Compiled in: the text of every file in convert/families.
struct RecipeText {
  std::string_view name;
  std::string_view text;
};
const std::vector<RecipeText>& built_in_recipes();
std::string_view modeling_program();  // convert/programs/modeling_rmsnorm.py

// The recipe for this configuration: the file `path`, or the built-in one for its model_type.
Recipe choose_recipe(const Json& config, const std::string& path);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_RECIPE_H_
