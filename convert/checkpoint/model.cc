#include "convert/checkpoint/model.h"

#include <algorithm>

#include "convert/checkpoint/compare.h"
#include "convert/checkpoint/fields.h"

namespace rmsnorm::convert::checkpoint {

namespace {

using tools::in_quotes;
using tools::shape_text;

constexpr std::int64_t kMaxFurther = 16;    // layers behind the last: published models have one
constexpr std::size_t kMaxParts = 1 << 20;  // of a model: far beyond any, well below what fills the memory

std::string replaced(std::string name, const std::string& from, const std::string& to) {
  for (std::size_t at = name.find(from); at != std::string::npos; at = name.find(from, at + to.size())) {
    name.replace(at, from.size(), to);
    if (name.size() > kMaxNameLength) {
      tools::fail_input("recipe: renames make {} of {} bytes; a name must have at most {}", in_quotes(name),
                        name.size(), kMaxNameLength);
    }
  }
  return name;
}

std::int64_t product(const tools::Shape& shape, std::size_t begin, std::size_t end) {
  std::int64_t result = 1;
  for (std::size_t i = begin; i < end; ++i) result *= shape[i];
  return result;
}

// Calls visit(indices) for all values of the letters that are not bound; the first of `first_letters` begin at `first`.
template <class Visit>
void for_all(const std::string& letters, const std::map<char, std::string>& counts, const Config& config,
             const std::string& name, std::int64_t first, Indices indices, const Visit& visit, std::size_t at = 0) {
  while (at < letters.size() && indices.contains(letters[at])) ++at;
  if (at == letters.size()) {
    visit(indices);
    return;
  }
  const auto count = counts.find(letters[at]);
  if (count == counts.end()) {
    tools::fail_input("recipe: {} has the index {}; counts must say how many there are", in_quotes(name), letters[at]);
  }
  const std::int64_t end = config.integer(count->second, "number of " + name);
  if (end > kMaxIndex) {
    refuse(RefusalCode::kUnknown, count->second, "the configuration says {}; it must be at most {}", end, kMaxIndex);
  }
  for (std::int64_t i = first; i < end; ++i) {
    Indices inner = indices;
    inner[letters[at]] = i;
    for_all(letters, counts, config, name, first, inner, visit, at + 1);
  }
}

bool starts_with_any(std::string_view name, std::string_view module, std::initializer_list<const char*> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](const char* ending) {
    return name.size() > module.size() && name.starts_with(module) && name.substr(module.size()).starts_with(ending);
  });
}

// Classes with a small head of their own have none that could share the embedding, whatever the flag says.
bool only_classes(const Config& config) {
  constexpr std::string_view kEndings[] = {"ForSequenceClassification", "ForTokenClassification",
                                           "ForQuestionAnswering"};
  const Json architectures = config.json().value("architectures", Json());
  return architectures.is_array() && !architectures.empty() &&
         std::all_of(architectures.begin(), architectures.end(), [&](const Json& name) {
           return name.is_string() && std::any_of(std::begin(kEndings), std::end(kEndings), [&](std::string_view end) {
                    return name.get_ref<const std::string&>().ends_with(end);
                  });
         });
}

// Older classes drop such a head, newer ones keep it.
void refuse_two_heads(const TiedNames& tie, const StoredTensor& head, const StoredTensor& table) {
  if (&head == &table || same_bytes(head, table, kDefaultChunkBytes)) return;
  refuse(RefusalCode::kTie, head.name,
         "{} is true and the files hold a head that differs from {}: some versions of the class use the one, some the "
         "other; set {} to false if the head is its own, or remove it from the files",
         tie.flag, table.name, tie.flag);
}

}  // namespace

Matrix matrix_of(Layout layout, const tools::Shape& shape) {
  const std::size_t rank = shape.size();
  switch (layout) {
    case Layout::kTable:
      return {1, rank == 0 ? 1 : product(shape, 0, rank - 1), rank == 0 ? 1 : shape.back(), false};
    case Layout::kConv:
      return rank < 2 ? Matrix{0, 0, 0, true} : Matrix{1, shape[0], product(shape, 1, rank), true};
    default:
      if (rank < 2) return {0, 0, 0, true};
      return {product(shape, 0, rank - 2), shape[rank - 2], shape[rank - 1], layout == Layout::kLinear};
  }
}

Model::Model(const Recipe& recipe_in, const Json& config_json, const Checkpoint& checkpoint_in, bool strict)
    : recipe(recipe_in), checkpoint(checkpoint_in), config(config_json, recipe_in.defaults), strict_(strict) {
  refuse_by_rules(recipe, config);
  parameters = recipe.no_parameters.is_null() || !holds(recipe.no_parameters, config);
  add_ties();
  for (const Stream& stream : recipe.streams) {
    if (holds(stream.when, config)) add_stream(stream);
  }
  for (const Site& site : recipe.local) {
    if (holds(site.when, config)) add_site(site, -1, 0, recipe.local_counts);
  }
  add_projections();
  for (const BiasKey& key : recipe.bias_keys) {
    auto& modules = bias_keys.emplace_back();
    config.flag(key.key);
    for (const Item& item : key.modules) add_parts(item, recipe.local_counts, {}, modules);
  }
  classify(strict);
}

std::vector<std::string> Model::known_as(const std::string& name) const {
  std::vector<std::string> names{name};
  std::string all = name;
  const auto add = [&](const std::string& other) {
    if (std::find(names.begin(), names.end(), other) == names.end()) names.push_back(other);
  };
  for (const auto& [from, to] : recipe.renames) all = replaced(all, from, to);
  add(all);
  for (const auto& [from, to] : recipe.renames) add(replaced(name, from, to));
  return names;
}

const StoredTensor* Model::find(const std::string& name) const {
  for (const std::string& known : known_as(name)) {
    for (const std::string& prefix : recipe.prefixes) {
      if (const StoredTensor* tensor = checkpoint.find(prefix + known)) return tensor;
    }
  }
  return nullptr;
}

std::string Model::prefix_of(const std::string& name, const StoredTensor& found) const {
  for (const std::string& known : known_as(name)) {
    if (found.name.ends_with(known)) return found.name.substr(0, found.name.size() - known.size());
  }
  return "";
}

void Model::use(const StoredTensor* tensor) {
  if (tensor != nullptr) used_.insert(tensor->name);
}

void Model::refuse_missing(const std::string& name) const {
  const std::string module = name.substr(0, name.rfind('.'));
  for (const std::string& prefix : recipe.prefixes) {
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      if (starts_with_any(tensor.name, prefix + module, {".qweight", ".weight_packed", ".weight_q", ".scales"}) ||
          starts_with_any(tensor.name, prefix + name, {"_blocks", "_scales", "_packed"})) {
        refuse(RefusalCode::kQuantisedWriter, module,
               "there is {} in place of a weight: the model is quantised; convert the original, then quantise that",
               in_quotes(tensor.name));
      }
    }
  }
  refuse(RefusalCode::kUnknown, name, "the recipe of {} names this tensor and the files do not hold it", recipe.family);
}

void Model::add_ties() {
  for (const TiedNames& tie : recipe.ties) {
    if (!holds(tie.when, config)) continue;
    TieParts parts;
    parts.tie = &tie;
    parts.tied = !tie.flag.empty() && config.flag(tie.flag) && !only_classes(config);
    std::vector<std::string> names{tie.table};
    names.insert(names.end(), tie.copies.begin(), tie.copies.end());
    for (const std::string& name : names) {
      const StoredTensor* found = find(name + ".weight");
      if (found == nullptr) continue;
      parts.stored.push_back(found);
      if (parts.table == nullptr) parts.table = found;
    }
    if (!tie.head.empty()) {
      const StoredTensor* head = find(tie.head + ".weight");
      parts.head_name = head != nullptr ? head->name : tie.head + ".weight";
      if (head != nullptr && parts.tied) parts.stored.push_back(head);
      if (head != nullptr && parts.tied && parts.table == nullptr) parts.table = head;
      if (head != nullptr && parts.tied) refuse_two_heads(tie, *head, *parts.table);
    }
    if (parts.table == nullptr) refuse_missing(tie.table + ".weight");
    const bool table_found = parts.table->name != parts.head_name;
    const std::string prefix = table_found ? prefix_of(tie.table + ".weight", *parts.table) : recipe.prefixes.front();
    for (const std::string& name : names) {
      const StoredTensor* found = find(name + ".weight");
      parts.names.push_back(found != nullptr ? found->name : prefix + name + ".weight");
    }
    for (const StoredTensor* tensor : parts.stored) use(tensor);
    ties.push_back(std::move(parts));
  }
}

void Model::use_table(const Item& item, Part& part) {
  for (std::size_t t = 0; t < ties.size(); ++t) {
    const TiedNames& tie = *ties[t].tie;
    const bool table =
        item.module == tie.table || std::find(tie.copies.begin(), tie.copies.end(), item.module) != tie.copies.end();
    if (!table && !(item.module == tie.head && ties[t].tied)) continue;
    part.tie = static_cast<int>(t);
    part.weight = ties[t].table;
  }
}

void Model::count(const std::string& name) {
  if (++visits_ > kMaxParts)
    tools::fail_input("recipe: up to {} there are more than {} modules", in_quotes(name), kMaxParts);
}

bool Model::add_part(const Item& item, const Indices& indices, std::vector<Part>& parts) {
  count(item.module);
  for (const std::string& other : {item.bias, item.scale, item.through}) {
    for (const char letter : index_letters(other)) {
      if (!indices.contains(letter)) {
        tools::fail_input("recipe: {} has the index {}; {} must have it, too", in_quotes(other), letter,
                          in_quotes(item.module));
      }
    }
  }
  Part part;
  part.item = &item;
  part.module = fill(item.module, indices);
  use_table(item, part);
  const std::string weight = fill(item.weight, indices);
  if (part.weight == nullptr) part.weight = find(weight);
  if (part.weight == nullptr && item.optional) return false;
  if (part.weight == nullptr) refuse_missing(weight);
  if (!item.bias.empty()) {
    const std::string bias = fill(item.bias, indices);
    part.bias = find(bias);
    // Beside the weight, under the name it has in these files.
    const bool beside = item.bias == item.module + ".bias" && part.weight->name.ends_with(".weight") && part.tie < 0;
    part.bias_name = part.bias != nullptr ? part.bias->name
                     : beside             ? part.weight->name.substr(0, part.weight->name.size() - 6) + "bias"
                                          : bias;
  }
  if (!item.scale.empty()) part.scale = find(fill(item.scale, indices));
  if (!item.through.empty()) part.through = fill(item.through, indices);
  part.matrix = matrix_of(item.layout, part.weight->shape);
  for (const StoredTensor* tensor : {part.weight, part.bias, part.scale}) {
    use(tensor);
    if (tensor != nullptr && tensor->elements() == 0) {
      refuse(RefusalCode::kUnknown, tensor->name, "its shape is {}; it must have elements", shape_text(tensor->shape));
    }
  }
  parts.push_back(std::move(part));
  return true;
}

void Model::add_parts(const Item& item, const std::map<char, std::string>& counts, const Indices& bound,
                      std::vector<Part>& parts) {
  if (!holds(item.when, config)) return;
  for_all(index_letters(item.module), counts, config, item.module, 0, bound,
          [&](const Indices& indices) { add_part(item, indices, parts); });
}

void Model::check_writer(Part& part, std::int64_t width) {
  if (part.matrix.outputs() != width) {
    refuse(RefusalCode::kUnknown, part.weight->name, "its shape is {}; the outputs must be {}, the width of the stream",
           shape_text(part.weight->shape), width);
  }
  part.outputs = {{0, width}};
  for (const StoredTensor* vector : {part.bias, part.scale}) {
    const bool fits =
        vector == nullptr ||
        (vector == part.scale ? vector->elements() == width : !vector->shape.empty() && vector->shape.back() == width);
    if (!fits) {
      refuse(RefusalCode::kUnknown, vector->name, "its shape is {}; it must be [{}]", shape_text(vector->shape), width);
    }
  }
  if (part.bias != nullptr && part.bias->elements() != width * part.matrix.batch) {
    refuse(RefusalCode::kUnknown, part.bias->name, "its shape is {}; it must have {} elements",
           shape_text(part.bias->shape), width * part.matrix.batch);
  }
}

void Model::check_local(Part& part, std::int64_t width) {
  const std::int64_t groups = part.item->groups.empty() ? 1 : config.integer(part.item->groups, "groups of rows");
  const std::int64_t parts = part.item->parts;
  if (groups <= 0 || groups > static_cast<std::int64_t>(kMaxParts) || width <= 0 ||
      part.matrix.outputs() / parts / groups != width || part.matrix.outputs() != groups * parts * width) {
    refuse(RefusalCode::kUnknown, part.weight->name, "its shape is {}; the outputs must be {} x {} x {}",
           shape_text(part.weight->shape), groups, parts, width);
  }
  if (part.scale != nullptr && part.scale->elements() != part.matrix.outputs()) {
    refuse(RefusalCode::kUnknown, part.scale->name, "its shape is {}; it must be [{}]", shape_text(part.scale->shape),
           part.matrix.outputs());
  }
  if (part.bias != nullptr && part.bias->elements() != part.matrix.outputs()) {
    refuse(RefusalCode::kUnknown, part.bias->name, "its shape is {}; it must be [{}]", shape_text(part.bias->shape),
           part.matrix.outputs());
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t begin = (g * parts + part.item->part) * width;
    part.outputs.push_back({begin, begin + width});
  }
}

void Model::check_reader(Part& part, const NormSite& site) {
  const Item& item = *part.item;
  const std::int64_t wanted = site.width * item.chunks;
  // A convolution with a kernel reads each channel several times.
  const bool channels =
      item.layout == Layout::kConv && part.weight->shape.size() > 1 && part.weight->shape[1] == wanted;
  // A table read as a head is [vocabulary, width].
  if (part.tie >= 0) part.matrix = matrix_of(Layout::kLinear, part.weight->shape);
  if (part.matrix.inputs() != wanted && !channels) {
    refuse(RefusalCode::kUnknown, part.weight->name, "its shape is {}; it must read {} values of {}",
           shape_text(part.weight->shape), wanted, site.module);
  }
  const std::int64_t outputs = part.matrix.outputs();
  if (outputs % item.rows.of != 0) {
    refuse(RefusalCode::kUnknown, part.weight->name, "its shape is {}; the outputs must be a multiple of {}",
           shape_text(part.weight->shape), item.rows.of);
  }
  part.outputs = {{outputs / item.rows.of * item.rows.from, outputs / item.rows.of * item.rows.to}};
  if (part.bias != nullptr && part.bias->elements() != outputs * part.matrix.batch) {
    refuse(RefusalCode::kUnknown, part.bias->name, "its shape is {}; it must have {} elements",
           shape_text(part.bias->shape), outputs * part.matrix.batch);
  }
}

void Model::add_stream(const Stream& stream) {
  StreamParts parts;
  parts.stream = &stream;
  parts.width = config.integer(stream.width, "width of the stream");
  const int index = static_cast<int>(streams.size());
  for (const Item& item : stream.entry) add_parts(item, stream.counts, {}, parts.entry);
  for (const Item& item : stream.writers) add_parts(item, stream.counts, {}, parts.writers);
  // An entry that only the operation centres is listed for the report, if at all: nothing of it is touched.
  if (stream.why_op.empty()) {
    for (Part& part : parts.entry) check_writer(part, parts.width);
  }
  for (Part& part : parts.writers) {
    if (!recipe.rms) check_writer(part, parts.width);
  }
  if (!stream.tabulated.norm.empty()) add_tabulated(stream.tabulated, parts);
  streams.push_back(std::move(parts));
  for (const Site& site : stream.sites) {
    if (!holds(site.when, config)) continue;
    const std::int64_t width =
        site.width.empty() ? streams.back().width : config.integer(site.width, "width of " + site.norm);
    add_site(site, index, width, stream.counts);
  }
}

// A converted model has the norm no more.
void Model::add_tabulated(const Tabulated& tabulated, StreamParts& parts) {
  add_part(tabulated.table.front(), {}, parts.tabulated);
  check_writer(parts.tabulated.front(), parts.width);
  const Site& site = tabulated.norm.front();
  NormSite& norm = parts.tabulated_norm.emplace_back();
  norm.site = &site;
  norm.module = site.norm;
  norm.width = parts.width;
  norm.epsilon = config.epsilon(site.epsilon, site.norm);
  norm.weight = find(site.norm + ".weight");
  norm.bias = find(site.norm + ".bias");
  if (norm.weight == nullptr && strict_) refuse_missing(site.norm + ".weight");
  for (const StoredTensor* vector : {norm.weight, norm.bias}) {
    if (vector != nullptr && (vector->shape != tools::Shape{parts.width} || !vector->row_type())) {
      refuse(RefusalCode::kUnknown, vector->name, "it is {} {}; it must be floats of shape [{}]", vector->dtype,
             shape_text(vector->shape), parts.width);
    }
    use(vector);
  }
}

void Model::add_projections() {
  for (const StreamParts& stream : streams) {
    for (const Part& writer : stream.writers) projections_.emplace(writer.module, &writer);
  }
  for (const NormSite& site : sites) {
    for (const Part& reader : site.readers) {
      if (!reader.through.empty() && !projections_.contains(reader.through)) {
        tools::fail_input("recipe: {} goes through {}, which is no writer; it must be one", in_quotes(reader.module),
                          in_quotes(reader.through));
      }
    }
  }
}

const Part* Model::projection_of(const Part& reader) const {
  if (reader.through.empty() || reader.bias != nullptr) return nullptr;
  const Part& writer = *projections_.at(reader.through);
  const bool fits = writer.matrix.batch == 1 && reader.matrix.batch == 1 &&
                    writer.matrix.inputs() == reader.matrix.outputs() &&
                    reader.outputs.front().end - reader.outputs.front().begin == reader.matrix.outputs();
  return fits && writer.bias != nullptr && writer.weight->row_type() && writer.bias->row_type() ? &writer : nullptr;
}

void Model::add_site(const Site& site, int stream, std::int64_t width, const std::map<char, std::string>& counts) {
  for_all(index_letters(site.norm), counts, config, site.norm, site.first, {},
          [&](const Indices& indices) { add_site_at(site, stream, width, counts, indices); });
}

void Model::add_site_at(const Site& site, int stream, std::int64_t width, const std::map<char, std::string>& counts,
                        const Indices& indices) {
  count(site.norm);
  NormSite norm;
  norm.site = &site;
  norm.stream = stream;
  norm.module = fill(site.norm, indices);
  norm.width = width;
  if (parameters) {
    norm.weight = find(norm.module + ".weight");
    if (norm.weight == nullptr && site.optional) return;
    if (norm.weight == nullptr) refuse_missing(norm.module + ".weight");
    norm.bias = find(norm.module + ".bias");
    if (width == 0 && !norm.weight->shape.empty()) norm.width = norm.weight->shape.back();
    for (const StoredTensor* vector : {norm.weight, norm.bias}) {
      const bool fits = vector == nullptr || (!vector->shape.empty() && vector->shape.back() == norm.width &&
                                              (stream < 0 || vector->shape.size() == 1));
      if (!fits) {
        refuse(RefusalCode::kUnknown, vector->name, "its shape is {}; it must be [{}]", shape_text(vector->shape),
               norm.width);
      }
      use(vector);
    }
  }
  norm.epsilon = config.epsilon(site.epsilon, norm.module);
  if (site.exposed_by.empty() || in_files(site.exposed_by)) norm.exposed = site.exposed;
  for (const Item& item : site.readers) add_parts(item, counts, indices, norm.readers);
  for (Part& part : norm.readers) check_reader(part, norm);
  for (const Item& item : site.writers) add_parts(item, counts, indices, norm.writers);
  for (Part& part : norm.writers) {
    if (norm.width == 0) {  // norms without parameters: the writer's groups tell
      const std::int64_t groups = part.item->groups.empty() ? 1 : config.integer(part.item->groups, "groups of rows");
      norm.width = groups <= 0 ? 0 : part.matrix.outputs() / part.item->parts / groups;
    }
    check_local(part, norm.width);
  }
  sites.push_back(std::move(norm));
}

std::vector<std::string> Model::patterns_of(const std::string& pattern) const {
  std::vector<std::string> patterns;
  for (const std::string& one : expand_lists(pattern)) {
    for (const std::string& known : known_as(one)) {
      for (const std::string& prefix : recipe.prefixes) patterns.push_back(prefix + known);
    }
  }
  return patterns;
}

bool Model::in_files(const std::string& pattern) const {
  const std::vector<std::string> patterns = patterns_of(pattern);
  return std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(), [&](const StoredTensor& tensor) {
    return std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, tensor.name); });
  });
}

void Model::classify(bool strict) {
  std::vector<std::string> patterns;
  for (const std::string& pattern : recipe.inert) {
    for (std::string& one : patterns_of(pattern)) patterns.push_back(std::move(one));
  }
  if (recipe.further) {
    const std::int64_t layers = config.integer(recipe.local_counts.at('i'), "number of layers");
    const std::int64_t more = std::min(config.integer(recipe.further->count, "number of further layers"), kMaxFurther);
    for (std::int64_t i = layers; i < layers + more; ++i) {
      for (std::string& one : patterns_of(fill(recipe.further->names, {{'i', i}}))) patterns.push_back(std::move(one));
    }
  }
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (used_.contains(tensor.name)) continue;
    const bool known =
        std::any_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, tensor.name); });
    if (known) {
      inert.insert(tensor.name);
    } else {
      unknown.push_back(tensor.name);
    }
  }
  if (unknown.empty() || !strict) return;
  constexpr std::size_t kShown = 8;
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, unknown.size()); ++i)
    names += (i == 0 ? "" : ", ") + in_quotes(unknown[i]);
  refuse(
      RefusalCode::kUnknown, unknown.front(),
      "{} of the tensors are not in the recipe of {}: {}{}; what they do decides whether the model may be converted: "
      "name them in a recipe (--recipe)",
      unknown.size(), recipe.family, names, unknown.size() > kShown ? ", .." : "");
}

void refuse_by_rules(const Recipe& recipe, const Config& config) {
  for (const Rule& rule : recipe.refusals) {
    if (holds(rule.when, config)) refuse(rule.code, rule.site, "{}", rule.text);
  }
}

void refuse_converted(const Checkpoint& checkpoint) {
  for (const Shard& shard : checkpoint.shards()) {
    if (!shard.header.metadata) continue;
    for (const auto& [key, value] : *shard.header.metadata) {
      if (key == kProvenanceKey)
        refuse(RefusalCode::kAlreadyConverted, shard.file, "it was written by {} already; give the original",
               in_quotes(value));
    }
  }
}

}  // namespace rmsnorm::convert::checkpoint
