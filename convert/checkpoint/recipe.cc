#include "convert/checkpoint/recipe.h"

#include <algorithm>

#include "convert/checkpoint/fields.h"
#include "convert/checkpoint/pattern.h"

namespace rmsnorm::convert::checkpoint {

namespace {

using tools::fail_input;
using tools::in_quotes;

template <class Enum>
Enum one_of(Fields& fields, const char* key, Enum otherwise, Names<Enum> names) {
  const std::string text = fields.text(key);
  if (text.empty()) return otherwise;
  if (const auto value = value_named(names, text)) return *value;
  fail_input("{} is {}; it must be one of {}", fields.place(key), in_quotes(text), all_names(names));
}

// What the whole recipe sets for each site and item that does not say otherwise.
struct Inherited {
  Layout layout = Layout::kLinear;
  Gain gain = Gain::kWeight;
  Json epsilon;
  std::string width;
  std::map<char, std::string> counts;
};

std::vector<std::string> expanded(const std::string& pattern, const std::string& place) {
  auto names = expand_lists(pattern);
  if (names.empty()) {
    fail_input("{} is {}; its braces must be {{i}} or {{a,b}}, with at most {} names in all", place, in_quotes(pattern),
               kMaxExpansions);
  }
  return names;
}

// "name?" is a tensor that may be missing.
bool take_question_mark(std::string& name) {
  if (!name.ends_with('?')) return false;
  name.pop_back();
  return true;
}

void check_condition(const Json& condition, const std::string& place) {
  if (condition.is_null()) return;
  if (!condition.is_object()) fail_input("{} is {}; it must be an object", place, Fields::shown(condition));
  for (const auto& [key, value] : condition.items()) {
    if (key == "any" || key == "all") {
      if (!value.is_array() || value.empty()) {
        fail_input("{}.{} is {}; it must be a list of conditions", place, key, Fields::shown(value));
      }
      for (const auto& inner : value) check_condition(inner, place + "." + key);
    } else if (key == "not") {
      check_condition(value, place + ".not");
    } else if (value.is_object()) {
      Fields fields(value, place + "." + key);
      fields.find("key");
      fields.find("present");
      fields.finish();
      if (value.size() != 1) fail_input("{} has {} keys; it must be one", fields.place(), value.size());
      if (value.contains("key")) fields.text("key");
      if (value.contains("present")) fields.flag("present");
    }
  }
}

Json condition(Fields& fields, const char* key = "when") {
  Json value = fields.json(key);
  check_condition(value, fields.place(key));
  return value;
}

Rows read_rows(Fields& fields) {
  const Json* value = fields.find("rows");
  if (value == nullptr) return {};
  Fields rows(*value, fields.place("rows"));
  constexpr int kMost = 1024;
  const Rows result{rows.number("from", 0, 0, kMost), rows.number("to", 1, 1, kMost), rows.number("of", 1, 1, kMost)};
  rows.finish();
  if (result.from >= result.to || result.to > result.of) {
    fail_input("{} is {}/{} .. {}/{}; it must be a part of the rows", rows.place(), result.from, result.of, result.to,
               result.of);
  }
  return result;
}

// An item may stand for several: a list in its name.
void read_items(const Json& json, const std::string& place, Layout layout, std::vector<Item>& items) {
  const Json object = json.is_string() ? Json{{"module", json}} : json;
  Fields fields(object, place);
  Item item;
  std::string module = fields.text("module");
  std::string tensor = fields.text("tensor");
  if (module.empty() == tensor.empty()) fail_input("{} must have one of the keys module and tensor", place);
  const bool raw = module.empty();
  std::string& name = raw ? tensor : module;
  item.optional = take_question_mark(name);
  item.layout = one_of(fields, "layout", raw ? Layout::kTable : layout, kLayouts);
  const std::string bias = fields.text("bias");
  item.rows = read_rows(fields);
  item.chunks = fields.number("chunks", 1, 1, 64);
  item.bias_cancels = fields.flag("bias_cancels");
  const Json groups = fields.json("groups");
  if (groups.is_number_integer()) {
    item.groups = groups.dump();
  } else if (!groups.is_null()) {
    item.groups = Fields::text_of(groups, fields.place("groups"));
  }
  item.parts = fields.number("parts", 1, 1, 64);
  item.part = fields.number("part", 0, 0, item.parts - 1);
  item.scale = fields.text("scale");
  item.through = fields.text("through");
  item.when = condition(fields);
  fields.finish();
  for (const std::string& one : expanded(name, place)) {
    item.module = one;
    item.weight = raw ? one : one + ".weight";
    item.bias = !bias.empty() ? bias : raw ? "" : one + ".bias";
    items.push_back(item);
  }
}

std::vector<Item> read_item_list(Fields& fields, const char* key, Layout layout) {
  std::vector<Item> items;
  fields.for_each(key, [&](const Json& value, const std::string& at) { read_items(value, at, layout, items); });
  return items;
}

Json read_epsilon(Fields& fields, const Json& otherwise) {
  const Json* value = fields.find("epsilon");
  if (value == nullptr) return otherwise;
  if (!value->is_string() && !(value->is_number() && value->get<double>() > 0 && value->get<double>() < 1)) {
    fail_input("{} is {}; it must be a key of the configuration or a number between 0 and 1", fields.place("epsilon"),
               Fields::shown(*value));
  }
  return *value;
}

// A site's norm may be a list, too: each is a site with the same readers.
void read_site(const Json& json, const std::string& place, const Inherited& inherited, bool local,
               std::vector<Site>& sites) {
  Fields fields(json, place);
  Site site;
  std::string norm = Fields::text_of(fields.need("norm"), fields.place("norm"));
  site.optional = take_question_mark(norm);
  site.first = fields.number("first", 0, 0, 1 << 20);
  site.gain = one_of(fields, "gain", inherited.gain, kGains);
  site.width = fields.text("width", local ? "" : inherited.width);
  site.epsilon = read_epsilon(fields, inherited.epsilon);
  site.when = condition(fields);
  if (local) {
    site.writers = read_item_list(fields, "writers", inherited.layout);
    if (site.writers.empty()) fail_input("{}.writers is empty; a local site must have at least one", place);
  } else {
    site.readers = read_item_list(fields, "readers", inherited.layout);
    site.exposed = fields.text("exposed");
    site.exposed_by = fields.text("exposed_by");
    if (!site.exposed_by.empty() && site.exposed.empty()) {
      fail_input("{} has exposed_by and no exposed; that must say why", place);
    }
  }
  fields.finish();
  for (const std::string& one : expanded(norm, place)) {
    site.norm = one;
    sites.push_back(site);
  }
}

std::map<char, std::string> read_counts(Fields& fields, std::map<char, std::string> counts) {
  const Json* value = fields.find("counts");
  if (value == nullptr) return counts;
  if (!value->is_object()) fail_input("{} is {}; it must be an object", fields.place("counts"), Fields::shown(*value));
  for (const auto& [letter, key] : value->items()) {
    if (letter.size() != 1 || letter[0] < 'a' || letter[0] > 'z') {
      fail_input("{} has the key {}; it must be one letter", fields.place("counts"), in_quotes(letter));
    }
    counts[letter[0]] = key.is_number_integer() ? key.dump() : Fields::text_of(key, fields.place("counts"));
  }
  return counts;
}

void read_tabulated(const Json& json, const std::string& place, const Inherited& inherited, Tabulated& tabulated) {
  Fields fields(json, place);
  Site site;
  read_items(Fields::text_of(fields.need("table"), fields.place("table")), place + ".table", Layout::kTable,
             tabulated.table);
  site.norm = Fields::text_of(fields.need("norm"), fields.place("norm"));
  site.gain = one_of(fields, "gain", inherited.gain, kGains);
  site.epsilon = read_epsilon(fields, inherited.epsilon);
  fields.finish();
  if (tabulated.table.size() != 1 || !index_letters(tabulated.table.front().module + site.norm).empty()) {
    fail_input("{} must name one table and one norm", place);
  }
  tabulated.norm.push_back(std::move(site));
}

void read_entry(Fields& stream_fields, const Inherited& inherited, Stream& stream) {
  Fields fields(stream_fields.need("entry"), stream_fields.place("entry"));
  stream.entry = read_item_list(fields, "writers", Layout::kTable);
  if (const Json* value = fields.find("op")) {
    Fields op(*value, fields.place("op"));
    stream.op.at = Fields::text_of(op.need("at"), op.place("at"));
    stream.op.side = one_of(op, "side", Side::kInput, kSides);
    op.finish();
  }
  stream.prefer_op = fields.flag("prefer_op");
  stream.why_op = fields.text("only_op");
  if (const Json* value = fields.find("tabulate")) {
    read_tabulated(*value, fields.place("tabulate"), inherited, stream.tabulated);
    if (stream.why_op.empty()) fail_input("{} has tabulate; it must have only_op, too", fields.place());
  }
  fields.finish();
  if (stream.entry.empty() && stream.why_op.empty()) {
    fail_input("{} has no writers; only_op must then say why weights cannot centre the entry", fields.place());
  }
  if ((stream.prefer_op || !stream.why_op.empty()) && stream.op.at.empty()) {
    fail_input("{} must have an op", fields.place());
  }
}

Stream read_stream(const Json& json, const std::string& place, const Inherited& defaults, bool rms) {
  Fields fields(json, place);
  Stream stream;
  stream.name = Fields::text_of(fields.need("name"), fields.place("name"));
  Inherited inherited = defaults;
  inherited.layout = one_of(fields, "layout", defaults.layout, kLayouts);
  inherited.gain = one_of(fields, "gain", defaults.gain, kGains);
  inherited.epsilon = read_epsilon(fields, defaults.epsilon);
  stream.width = inherited.width = fields.text("width", defaults.width);
  stream.counts = read_counts(fields, defaults.counts);
  stream.when = condition(fields);
  if (!rms) read_entry(fields, inherited, stream);
  fields.for_each(
      "sites", [&](const Json& value, const std::string& at) { read_site(value, at, inherited, false, stream.sites); });
  stream.writers = read_item_list(fields, "writers", inherited.layout);
  fields.finish();
  if (stream.width.empty()) fail_input("{}.width is missing; it must be there or beside the streams", place);
  return stream;
}

TiedNames read_tie(const Json& json, const std::string& place) {
  Fields fields(json, place);
  TiedNames tie;
  tie.table = Fields::text_of(fields.need("table"), fields.place("table"));
  tie.copies = fields.texts("copies");
  tie.head = fields.text("head");
  tie.flag = fields.text("flag");
  tie.when = condition(fields);
  fields.finish();
  if (tie.head.empty() != tie.flag.empty()) fail_input("{} must have both of head and flag, or none", place);
  return tie;
}

// "code" is read for refusals only.
Rule read_rule(const Json& json, const std::string& place, bool refusal) {
  Fields fields(json, place);
  Rule rule;
  rule.text = Fields::text_of(fields.need("text"), fields.place("text"));
  if (refusal) {
    const std::string code = Fields::text_of(fields.need("code"), fields.place("code"));
    const auto found =
        std::find_if(std::begin(kRefusals), std::end(kRefusals), [&](const auto& r) { return code == r.name; });
    if (found == std::end(kRefusals)) fail_input("{} is {}; it must be R01 to R14", place, in_quotes(code));
    rule.code = found->code;
    rule.site = Fields::text_of(fields.need("site"), fields.place("site"));
  }
  const bool always = fields.flag("always");
  rule.when = condition(fields);
  fields.finish();
  if (always == !rule.when.is_null()) fail_input("{} must have one of the keys when and always", place);
  return rule;
}

// A configuration key, or a number, as a text.
std::string key_or_number(Fields& fields, const char* key) {
  const Json* value = fields.find(key);
  if (value == nullptr) return "";
  return value->is_number_integer() ? value->dump() : Fields::text_of(*value, fields.place(key));
}

TargetPiece read_piece(const Json& json, const std::string& place) {
  TargetPiece piece;
  if (json.is_string()) {
    piece.name = Fields::text_of(json, place);
    return piece;
  }
  Fields fields(json, place);
  piece.name = fields.text("name");
  piece.zeros = key_or_number(fields, "zeros");
  piece.identity = key_or_number(fields, "identity");
  constexpr int kMost = 1 << 20;
  piece.from = fields.number("from", 0, 0, kMost);
  if (fields.find("to") != nullptr) piece.to = fields.number("to", 0, 0, kMost);
  fields.finish();
  if (piece.name.empty() + piece.zeros.empty() + piece.identity.empty() != 2) {
    fail_input("{} must have one of the keys name, zeros and identity", place);
  }
  if (piece.to && *piece.to <= piece.from) {
    fail_input("{} is rows {} to {}; it must be at least one", place, piece.from, *piece.to);
  }
  return piece;
}

TargetTensor read_target_tensor(const Json& json, const std::string& place) {
  Fields fields(json, place);
  TargetTensor tensor;
  const std::string module = fields.text("module");
  tensor.name = fields.text("tensor");
  if (module.empty() == tensor.name.empty()) fail_input("{} must have one of the keys module and tensor", place);
  tensor.module = !module.empty();
  if (tensor.module) tensor.name = module;
  const auto add = [&](const Json& value, const std::string& at) {
    TargetPiece piece = read_piece(value, at);
    const bool plain = piece.zeros.empty() && piece.identity.empty() && piece.from == 0 && !piece.to;
    if (tensor.module && !plain) fail_input("{} is a part or a constant; only a tensor can be made of it", at);
    for (const std::string& name : piece.name.empty() ? std::vector<std::string>{""} : expanded(piece.name, at)) {
      for (const char letter : index_letters(name)) {
        if (index_letters(tensor.name).find(letter) == std::string::npos) {
          fail_input("{} has the index {}; {} must have it, too", at, letter, in_quotes(tensor.name));
        }
      }
      tensor.of.push_back(piece);
      tensor.of.back().name = name;
    }
  };
  fields.for_each("of", add);
  tensor.when = condition(fields);
  fields.finish();
  if (tensor.of.empty()) fail_input("{}.of is missing; it must be a list of what the tensor is made of", place);
  const auto is_zeros = [](const TargetPiece& piece) { return !piece.zeros.empty(); };
  const auto is_identity = [](const TargetPiece& piece) { return !piece.identity.empty(); };
  if (std::all_of(tensor.of.begin(), tensor.of.end(), is_zeros) ||
      (tensor.of.size() > 1 && std::any_of(tensor.of.begin(), tensor.of.end(), is_identity))) {
    fail_input("{}.of has constants only, or an identity matrix beside others; zeros must stand beside a tensor",
               place);
  }
  return tensor;
}

void check_target_value(const Json& value, const std::string& place) {
  if (value.is_array()) {
    for (const Json& one : value) check_target_value(one, place);
  }
  if (!value.is_object()) return;
  Fields fields(value, place);
  const std::string file = fields.text("file");
  const std::string key = fields.text("key");
  const std::string tensor = fields.text("length");
  if (!tensor.empty()) fields.number("axis", 0, 0, 8);
  const Json ratio = fields.json("ratio");
  fields.finish();
  if (file.find('/') != std::string::npos) fail_input("{}.file is {}; it must be a plain name", place, in_quotes(file));
  if (key.empty() + tensor.empty() + ratio.is_null() != 2 || (key.empty() && !file.empty())) {
    fail_input("{} must have one of the keys key, length and ratio; file only beside key", place);
  }
  if (ratio.is_null()) return;
  if (!ratio.is_array() || ratio.size() != 2) fail_input("{}.ratio must be a list of two values", place);
  check_target_value(ratio, place + ".ratio");
}

TargetConfig read_target_config(const Json& json, const std::string& place) {
  Fields fields(json, place);
  TargetConfig part;
  part.when = condition(fields);
  part.set = fields.need("set");
  fields.finish();
  if (!part.set.is_object()) fail_input("{}.set must be an object", place);
  for (const auto& [path, value] : part.set.items()) check_target_value(value, place + ".set." + path);
  return part;
}

TargetRule read_target(const Json& json, const std::string& place) {
  Fields fields(json, place);
  TargetRule target;
  target.when = condition(fields);
  target.unless_text = fields.text("otherwise");
  fields.for_each("refuse", [&](const Json& value, const std::string& at) {
    target.refusals.push_back(read_rule(value, at, true));
  });
  fields.for_each("warn", [&](const Json& value, const std::string& at) {
    target.warnings.push_back(read_rule(value, at, false));
  });
  target.affine = one_of(fields, "affine", Affine::kKeep, kDecidedAffines);
  fields.for_each("tensors", [&](const Json& value, const std::string& at) {
    target.tensors.push_back(read_target_tensor(value, at));
  });
  fields.for_each("left_out", [&](const Json& value, const std::string& at) {
    for (const std::string& name : expanded(Fields::text_of(value, at), at)) target.left_out.push_back(name);
  });
  fields.for_each("config", [&](const Json& value, const std::string& at) {
    target.config.push_back(read_target_config(value, at));
  });
  target.ones = fields.texts("ones");
  target.set = fields.json("set");
  if (!target.set.is_null() && !target.set.is_object()) fail_input("{}.set must be an object", place);
  target.remove = fields.texts("remove");
  fields.finish();
  if (target.when.is_null() != target.unless_text.empty()) {
    fail_input("{} must have both of when and otherwise, or none", place);
  }
  return target;
}

// Every name is looked up with each of them.
void check_count(const std::string& place, std::size_t count, std::size_t most) {
  if (count > most) fail_input("{} has {} elements; it must have at most {}", place, count, most);
}

void read_renames(Fields& fields, Recipe& recipe) {
  fields.for_each("renames", [&](const Json& value, const std::string& at) {
    if (!value.is_array() || value.size() != 2) fail_input("{} must be a list of two names", at);
    recipe.renames.emplace_back(Fields::text_of(value[0], at), Fields::text_of(value[1], at));
  });
  check_count(fields.place("renames"), recipe.renames.size(), kMaxRenames);
}

void read_targets(Fields& fields, Recipe& recipe) {
  const Json* targets = fields.find("targets");
  if (targets == nullptr) return;
  Fields names(*targets, fields.place("targets"));
  for (const char* name : {"llama", "timm"}) {
    if (const Json* target = names.find(name)) recipe.targets[name] = read_target(*target, names.place(name));
  }
  names.finish();
}

void read_body(Fields& fields, Recipe& recipe) {
  Inherited inherited;
  inherited.layout = one_of(fields, "layout", Layout::kLinear, kLayouts);
  inherited.gain = one_of(fields, "gain", Gain::kWeight, kGains);
  inherited.epsilon = read_epsilon(fields, Json());
  inherited.width = fields.text("width");
  inherited.counts = read_counts(fields, {});
  fields.for_each("streams", [&](const Json& value, const std::string& at) {
    recipe.streams.push_back(read_stream(value, at, inherited, recipe.rms));
  });
  fields.for_each(
      "local", [&](const Json& value, const std::string& at) { read_site(value, at, inherited, true, recipe.local); });
  recipe.local_counts = inherited.counts;
  fields.for_each("ties",
                  [&](const Json& value, const std::string& at) { recipe.ties.push_back(read_tie(value, at)); });
  fields.for_each("bias_keys", [&](const Json& value, const std::string& at) {
    Fields key(value, at);
    BiasKey& bias = recipe.bias_keys.emplace_back();
    bias.key = Fields::text_of(key.need("key"), key.place("key"));
    bias.modules = read_item_list(key, "modules", inherited.layout);
    key.finish();
  });
}

}  // namespace

Recipe parse_recipe(std::string_view text, const std::string& name) {
  const Json json = parse_json(text, name, kMaxRecipeBytes);
  Fields fields(json, name);
  Recipe recipe;
  fields.need("recipe");
  fields.number("recipe", 0, kRecipeFormat, kRecipeFormat);
  recipe.family = Fields::text_of(fields.need("family"), fields.place("family"));
  recipe.model_types = fields.texts("model_types");
  recipe.select = condition(fields, "select");
  recipe.rms = fields.flag("rms");
  for (const Json& prefix : fields.json("prefixes")) {
    if (!prefix.is_string()) fail_input("{} must be a list of texts", fields.place("prefixes"));
    recipe.prefixes.push_back(prefix.get<std::string>());
  }
  check_count(fields.place("prefixes"), recipe.prefixes.size(), kMaxPrefixes);
  if (recipe.prefixes.empty()) recipe.prefixes.emplace_back();
  read_renames(fields, recipe);
  if (const Json* defaults = fields.find("defaults")) {
    if (!defaults->is_object()) fail_input("{} must be an object", fields.place("defaults"));
    recipe.defaults = *defaults;
  }
  recipe.no_parameters = condition(fields, "no_parameters");
  read_body(fields, recipe);
  recipe.inert = fields.texts("inert");
  if (const Json* value = fields.find("further")) {
    Fields further(*value, fields.place("further"));
    recipe.further = {Fields::text_of(further.need("names"), further.place("names")),
                      Fields::text_of(further.need("count"), further.place("count"))};
    further.finish();
    if (index_letters(recipe.further->names) != "i" || !recipe.local_counts.contains('i')) {
      fail_input("{} must have names with the index {{i}}, and counts must have i", fields.place("further"));
    }
  }
  fields.for_each("refuse", [&](const Json& value, const std::string& at) {
    recipe.refusals.push_back(read_rule(value, at, true));
  });
  fields.for_each("warn", [&](const Json& value, const std::string& at) {
    recipe.warnings.push_back(read_rule(value, at, false));
  });
  read_targets(fields, recipe);
  fields.finish();
  return recipe;
}

}  // namespace rmsnorm::convert::checkpoint
