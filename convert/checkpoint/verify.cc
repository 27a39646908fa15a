#include "convert/checkpoint/verify.h"

#include <cmath>
#include <filesystem>
#include <mutex>
#include <set>

#include "convert/checkpoint/adapter.h"
#include "convert/checkpoint/apply.h"
#include "convert/checkpoint/blocks.h"
#include "convert/checkpoint/compare.h"
#include "convert/checkpoint/fields.h"
#include "convert/checkpoint/parallel.h"
#include "convert/checkpoint/verifier.h"

namespace rmsnorm::convert::checkpoint {

using tools::in_quotes;

namespace {

// rmsnorm.json, or an empty object: then nothing but the weights speaks.
Json read_provenance(const std::string& folder) {
  const std::string path = folder + "/" + kProvenanceFile;
  if (!std::filesystem::exists(path)) return Json::object();
  Json json = parse_json(read_text(path, kMaxConfigBytes), path, kMaxConfigBytes);
  if (!json.is_object()) refuse(RefusalCode::kMalformed, path, "the JSON must be an object");
  return json;
}

std::string operation(const Json& provenance, const char* key) {
  const auto found = provenance.find("operations");
  if (found == provenance.end() || !found->is_object() || !found->contains(key) || !(*found)[key].is_string())
    return "";
  return (*found)[key].get<std::string>();
}

// A program for another class has its own configuration; the names and sizes of the original hold for it.
Json config_for(const Model& original, const Json& config, bool other_class) {
  if (!other_class) return config;
  Json mixed = original.config.json();
  for (const TieParts& tie : original.ties) {
    if (tie.tie->flag.find('.') == std::string::npos && config.contains(tie.tie->flag)) {
      mixed[tie.tie->flag] = config[tie.tie->flag];
    }
  }
  return mixed;
}

}  // namespace

Verifier::Verifier(const Model& original, const Request& request)
    : original_(original),
      request_(request),
      provenance_(read_provenance(request.output)),
      fold_(operation(provenance_, "command") == "fold" || original.recipe.rms),
      target_(fold_ ? nullptr : find_target(original.recipe, operation(provenance_, "target"))),
      config_(read_config(request.output)),
      seen_config_(config_for(original, config_, target_ != nullptr)),
      checkpoint_(request.output, [this](const auto& output) { return view(output); }) {
  const auto operations = provenance_.find("operations");
  const bool carried = operations != provenance_.end() && operations->is_object() &&
                       operations->contains("carry_rounding") && (*operations)["carry_rounding"] == true;
  carried_ = carried;
}

void Verifier::fail(const std::string& text) {
  const std::lock_guard lock(mutex_);
  failures_.push_back(tools::printable(text));
}

// The tensor of the output that has this name, or this name behind a prefix.
const StoredTensor* Verifier::counterpart(const std::string& name) const {
  if (const StoredTensor* found = checkpoint_.find(name)) return found;
  for (const std::string& prefix : original_.recipe.prefixes) {
    if (!name.starts_with(prefix)) continue;
    const StoredTensor* found = checkpoint_.find(original_.recipe.prefixes.front() + name.substr(prefix.size()));
    if (found != nullptr) return found;
  }
  return nullptr;
}

bool Verifier::same(const StoredTensor* before, const StoredTensor* after) const {
  if (before == nullptr || after == nullptr) return before == after;
  return same_bytes(*before, *after, memory_);
}

Comparison Verifier::comparison(const Part& before, const Part& after) const {
  Comparison c;
  c.original = {before.weight, before.bias, before.scale, before.matrix};
  c.converted = {after.weight, after.bias, after.scale, after.matrix};
  c.outputs = {0, before.matrix.outputs()};
  c.memory = memory_ / 2;
  c.carried = carried_;
  return c;
}

bool Verifier::comparable(const Part& before, const Part& after) {
  const bool fits = before.weight->shape == after.weight->shape &&
                    (!before.bias || !after.bias || before.bias->elements() == after.bias->elements());
  const bool floats = before.weight->row_type() && after.weight->row_type() &&
                      (!after.bias || after.bias->row_type()) && (!after.scale || after.scale->row_type());
  if (!fits || !floats) fail(fmt::format("{}: its type or shape changed", after.weight->name));
  return fits && floats;
}

// The mean of a writer's output is gone, and it computes M of what it did.
void Verifier::check_writer(const Part& before, const Part& after) {
  if (!comparable(before, after)) return;
  Comparison c = comparison(before, after);
  c.centred = before.outputs;
  Worst exact;
  Worst centred;
  if (before.item->layout == Layout::kTable) {
    c.original.bias = c.converted.bias = nullptr;
    const auto norm = tabulated_.find(before.weight->name);
    if (norm != tabulated_.end()) c.row_norm = norm->second;
    compare_table(c, exact);
  } else {
    const Folding moved = moved_into(before);
    Vectors x;
    for (int k = 0; k < request_.vectors; ++k) {
      x.push_back(random_vector(before.module, k, static_cast<std::size_t>(before.matrix.inputs())));
    }
    Vectors shifted = x;
    for (std::vector<double>& vector : shifted) {
      for (std::size_t i = 0; i < moved.shift.size(); ++i) vector[i] += moved.shift[i];
    }
    compare_linear(c, shifted, x, exact);
    compare_weights(c, nullptr, exact);
    compare_biases(c, moved.shift.empty() ? nullptr : &moved, exact);
  }
  check_centred(c.converted, before.outputs, memory_, centred);
  if (after.bias != nullptr) {
    const std::int64_t outputs = after.matrix.outputs();
    const Matrix row{1, after.bias->elements() / outputs, outputs, false};
    check_centred({after.bias, nullptr, nullptr, row}, before.outputs, memory_, centred);
  }
  settle("writer", after.weight->name, exact, centred);
}

// What values of attentions lost of their norms' biases, and this writer must make up for: the sum of V shift.
Folding Verifier::moved_into(const Part& writer) const {
  Folding moved{{0, writer.matrix.outputs()}, {}, {}};
  for (std::size_t i = 0; i < original_.sites.size(); ++i) {
    const NormSite& site = original_.sites[i];
    for (std::size_t r = 0; r < site.readers.size(); ++r) {
      const Part& reader = site.readers[r];
      if (reader.through != writer.module || !is_moved(reader)) continue;
      const Folding values = folding(site, converted_->sites[i], reader);
      const Matrix& m = reader.matrix;
      moved.shift.resize(static_cast<std::size_t>(m.outputs()), 0.0);
      moved.sizes.resize(moved.shift.size(), 0.0);
      Blocks blocks(*reader.weight, m.cols, memory_ / 4);
      blocks.for_rows(0, m.rows, [&](std::int64_t row, std::span<const double> weights) {
        for (std::size_t c = 0; c < weights.size(); ++c) {
          const std::size_t output = m.out_rows ? static_cast<std::size_t>(row) : c;
          const double term = weights[c] * values.shift[m.out_rows ? c : static_cast<std::size_t>(row)];
          moved.shift[output] += term;
          moved.sizes[output] += std::fabs(term);
        }
      });
    }
  }
  return moved;
}

// The values' class has no place for a bias; what they lose is looked at in the writer behind them.
bool Verifier::is_moved(const Part& reader) const {
  if (fold_ || original_.projection_of(reader) == nullptr) return false;
  const std::string bias = reader.weight->name.substr(0, reader.weight->name.rfind('.')) + ".bias";
  return counterpart(bias) == nullptr;
}

void Verifier::settle(const char* what, const std::string& name, const Worst& exact, const Worst& centred) {
  if (!(exact.ratio <= 1)) {
    fail(fmt::format("{} {}: differs by {:.3g} times what rounding may cause", what, name, exact.ratio));
  }
  if (!(centred.ratio <= 1)) {
    fail(fmt::format("{} {}: a mean is {:.3g} times the limit of 8 units of the root mean square", what, name,
                     centred.ratio));
  }
  const std::lock_guard lock(mutex_);
  ++checked_;
  if (exact.ratio > worst_.ratio) worst_ = exact;
  if (centred.ratio > worst_mean_.ratio) worst_mean_ = centred;
}

// W (g x + s) + c = W' (g' x + s') + c' for every x: W' = W g / g' and c' = c + W (s - g / g' s').
Folding Verifier::folding(const NormSite& before, const NormSite& after, const Part& reader) const {
  const std::size_t width = static_cast<std::size_t>(before.width);
  const auto gain_of = [&](const NormSite& site) {
    return site.weight ? gains(*site.weight, site.site->gain) : std::vector<double>(width, 1.0);
  };
  const auto bias_of = [&](const NormSite& site) {
    return site.bias ? read_values(*site.bias) : std::vector<double>(width, 0.0);
  };
  const std::vector<double> gain = gain_of(before);
  const std::vector<double> new_gain = gain_of(after);
  const std::vector<double> shift = bias_of(before);
  const std::vector<double> new_shift = bias_of(after);
  Folding folded{reader.outputs.front(), {}, {}};
  for (int chunk = 0; chunk < reader.item->chunks; ++chunk) {
    for (std::size_t i = 0; i < width; ++i) {
      const double factor = gain[i] == new_gain[i] ? 1 : gain[i] / new_gain[i];
      folded.factor.push_back(factor);
      folded.shift.push_back(shift[i] - factor * new_shift[i]);
    }
  }
  return folded;
}

// What the norm gives for a random row, before and after; `bias` false: without the norm's bias.
void Verifier::norm_outputs(const NormSite& before, const NormSite& after, const Part& reader, bool bias, Vectors& x,
                            Vectors& converted_x) const {
  const std::size_t width = static_cast<std::size_t>(before.width);
  const auto gain_of = [&](const NormSite& site) {
    return site.weight ? gains(*site.weight, site.site->gain) : std::vector<double>(width, 1.0);
  };
  const auto bias_of = [&](const NormSite& site) {
    return site.bias && bias ? read_values(*site.bias) : std::vector<double>(width, 0.0);
  };
  const std::vector<double> gain = gain_of(before);
  const std::vector<double> new_gain = gain_of(after);
  const std::vector<double> shift = bias_of(before);
  const std::vector<double> new_shift = bias_of(after);
  for (int k = 0; k < request_.vectors; ++k) {
    std::vector<double> in;
    std::vector<double> new_in;
    for (int chunk = 0; chunk < reader.item->chunks; ++chunk) {
      std::vector<double> row = random_vector(before.module, k * reader.item->chunks + chunk, width);
      double mean = 0;
      for (const double value : row) mean += value / static_cast<double>(width);
      if (original_.recipe.rms) mean = 0;
      double square = 0;
      for (const double value : row) square += (value - mean) * (value - mean) / static_cast<double>(width);
      const double scale = 1 / std::sqrt(square + before.epsilon);
      const double new_scale = 1 / std::sqrt(square + after.epsilon);  // RMSNorm of the row without its mean
      for (std::size_t i = 0; i < width; ++i) {
        in.push_back((row[i] - mean) * scale * gain[i] + shift[i]);
        new_in.push_back((row[i] - mean) * new_scale * new_gain[i] + new_shift[i]);
      }
    }
    x.push_back(std::move(in));
    converted_x.push_back(std::move(new_in));
  }
}

void Verifier::check_reader(const NormSite& before, const NormSite& after, const Part& reader, const Part& new_reader) {
  // A tied head is no writer, though its tensor may be one.
  const auto local = reader.tie < 0 ? local_.find(reader.weight->name) : local_.end();
  const bool norm_same = same(before.weight, after.weight) && same(before.bias, after.bias);
  const bool reader_same = same(reader.weight, new_reader.weight) && same(reader.bias, new_reader.bias);
  if (norm_same && reader_same && before.epsilon == after.epsilon) return;
  if (norm_same && local != local_.end()) return;  // nothing folded: check_writer looks at it
  if (!comparable(reader, new_reader)) return;
  Comparison c = comparison(reader, new_reader);
  c.original.scale = c.converted.scale = nullptr;
  if (local != local_.end()) c.centred = local->second;
  Worst exact;
  Vectors x;
  Vectors converted_x;
  if (reader.matrix.inputs() != before.width * reader.item->chunks) {
    fail(fmt::format("{}: the norm before this convolution changed", new_reader.weight->name));
    return;
  }
  const bool dropped =
      reader.bias == nullptr && new_reader.bias == nullptr && (reader.item->bias_cancels || is_moved(reader));
  norm_outputs(before, after, reader, !dropped, x, converted_x);
  c.outputs = reader.outputs.front();
  compare_linear(c, x, converted_x, exact);
  for (const Range& rest : {Range{0, c.outputs.begin}, Range{c.outputs.end, reader.matrix.outputs()}}) {
    if (rest.begin == rest.end) continue;
    c.outputs = rest;
    compare_linear(c, x, x, exact);  // these outputs read something else
  }
  // A head that is still the table is looked at as the table.
  if (reader.tie < 0 || !converted_->ties[static_cast<std::size_t>(reader.tie)].tied) {
    const Folding folded = folding(before, after, reader);
    compare_weights(c, &folded, exact);
    if (!dropped) compare_biases(c, &folded, exact);
  }
  settle("reader", new_reader.weight->name, exact, {});
}

void Verifier::check_site(const NormSite& before, const NormSite& after) {
  if (before.epsilon != after.epsilon) {
    fail(fmt::format("{}: epsilon is {}; it was {}", before.module, after.epsilon, before.epsilon));
  }
  const bool norm_same = same(before.weight, after.weight) && same(before.bias, after.bias);
  if (!norm_same && (before.readers.empty() || before.stream < 0 || !before.exposed.empty())) {
    fail(fmt::format("{}: its parameters changed and nothing that reads it could make up for that", before.module));
    return;
  }
  const std::vector<const Part*> readers = kept(before.readers);
  const std::vector<const Part*> new_readers = kept(after.readers);
  if (readers.size() != new_readers.size()) {
    fail(fmt::format("{}: {} modules read it; it must be {}", before.module, new_readers.size(), readers.size()));
    return;
  }
  for (std::size_t r = 0; r < readers.size(); ++r) check_reader(before, after, *readers[r], *new_readers[r]);
}

bool Verifier::entry_by_op(const Stream& stream) const {
  const auto entry = provenance_.find("entry");
  if (entry == provenance_.end() || !entry->is_array()) return false;
  for (const Json& one : *entry) {
    if (!one.is_object() || one.value("stream", Json()) != stream.name) continue;
    return one.value("module", Json()) == Json(original_.known_as(stream.op.at));
  }
  return false;
}

// Norms that another class has as a table.
void Verifier::collect_tabulated() {
  if (target_ == nullptr) return;
  for (const StreamParts& stream : original_.streams) {
    if (stream.tabulated.empty()) continue;
    const NormSite& norm = stream.tabulated_norm.front();
    tabulated_[stream.tabulated.front().weight->name] = &norm;
    for (const StoredTensor* tensor : {norm.weight, norm.bias}) {
      if (tensor != nullptr) tabulated_tensors_.insert(tensor->name);
    }
  }
}

// Tensors that a check of their own looks at; all others must be the same byte by byte.
void Verifier::collect() {
  if (fold_) return;
  for (std::size_t s = 0; s < original_.streams.size(); ++s) {
    const StreamParts& stream = original_.streams[s];
    const bool op = entry_by_op(*stream.stream);
    if (!op && target_ != nullptr && !stream.tabulated.empty()) {
      add_writers(stream.tabulated, converted_->streams[s].tabulated);
    }
    if (!op && !stream.stream->why_op.empty() && target_ == nullptr) {
      fail(fmt::format("stream {}: no operation centres its entry in {}; one must", stream.stream->name,
                       kProvenanceFile));
    }
    if (!op && stream.stream->why_op.empty()) add_writers(stream.entry, converted_->streams[s].entry);
    add_writers(stream.writers, converted_->streams[s].writers);
  }
  for (std::size_t i = 0; i < original_.sites.size(); ++i) {
    const NormSite& site = original_.sites[i];
    if (site.writers.size() != converted_->sites[i].writers.size()) continue;
    add_writers(site.writers, converted_->sites[i].writers);
  }
}

void Verifier::add_writers(const std::vector<Part>& all_before, const std::vector<Part>& all_after) {
  const std::vector<const Part*> before = kept(all_before);
  const std::vector<const Part*> after = kept(all_after);
  if (before.size() != after.size()) {
    fail(fmt::format("{} modules write; it must be {}", after.size(), before.size()));
    return;
  }
  for (std::size_t p = 0; p < before.size(); ++p) {
    auto& ranges = local_[before[p]->weight->name];
    for (const Range& range : before[p]->outputs) {
      const bool there =
          std::any_of(ranges.begin(), ranges.end(), [&](const Range& r) { return r.begin == range.begin; });
      if (!there) ranges.push_back(range);
    }
    const auto [at, fresh] = writers_.try_emplace(before[p]->weight->name, *before[p], *after[p]);
    if (!fresh) at->second.first.outputs = ranges;
    for (const StoredTensor* tensor : {before[p]->weight, before[p]->bias, before[p]->scale}) {
      if (tensor != nullptr) looked_at_.insert(tensor->name);
    }
  }
}

// Weights that are folded into are compared as readers.
bool Verifier::folded_into(const std::string& weight) const {
  for (std::size_t i = 0; i < original_.sites.size(); ++i) {
    const NormSite& site = original_.sites[i];
    for (const Part& reader : site.readers) {
      if (reader.weight->name == weight && reader.tie < 0) {
        return !same(site.weight, converted_->sites[i].weight) || !same(site.bias, converted_->sites[i].bias);
      }
    }
  }
  return false;
}

void Verifier::check_names() {
  std::set<std::string> expected;
  for (const StoredTensor& tensor : original_.checkpoint.tensors()) {
    if (tabulated_tensors_.contains(tensor.name)) continue;  // one that is there is too much
    const StoredTensor* found = counterpart(tensor.name);
    if (found == nullptr) {
      if (!may_be_missing(tensor)) fail(fmt::format("{}: it is missing", tensor.name));
    } else {
      expected.insert(found->name);
    }
  }
  const auto expect = [&](const StoredTensor* tensor) {
    if (tensor != nullptr) expected.insert(tensor->name);
  };
  for (const TieParts& tie : converted_->ties) {
    for (const StoredTensor* tensor : tie.stored) expect(tensor);
    expect(checkpoint_.find(tie.head_name));
  }
  for (const NormSite& site : converted_->sites) {
    for (const Part& reader : site.readers) expect(reader.bias);
  }
  for (const auto& modules : converted_->bias_keys) {
    for (const Part& part : modules) expect(part.bias);
  }
  for (const StoredTensor& tensor : checkpoint_.tensors()) {
    if (expected.contains(tensor.name)) continue;
    if (!is_one_of_ones(tensor)) fail(fmt::format("{}: nothing asks for it", tensor.name));
  }
}

// Each name of a tensor holds the same, if the class does not share them.
void Verifier::check_ties() {
  for (std::size_t t = 0; t < original_.ties.size(); ++t) {
    const TieParts& before = original_.ties[t];
    const TieParts& after = converted_->ties[t];
    if (!before.tied || after.tied) continue;
    for (const std::string& name : before.names) {
      const StoredTensor* alias = counterpart(name);
      if (alias == nullptr) {
        fail(fmt::format("{}: it is missing, and {} is false: it must be stored", name, before.tie->flag));
      } else if (!same_bytes(*alias, *after.table, memory_)) {
        fail(fmt::format("{}: it differs from {}, whose other name it is", name, after.table->name));
      }
    }
  }
}

// What a program is told about the norms.
void Verifier::check_provenance() {
  if (fold_ || (target_ != nullptr && target_->tensors.empty()) || provenance_.empty()) return;
  const Json sites = provenance_.value("sites", Json::array());
  if (!sites.is_array() || sites.size() != original_.sites.size()) {
    fail(fmt::format("{}: sites must be a list of {}", kProvenanceFile, original_.sites.size()));
    return;
  }
  for (std::size_t i = 0; i < original_.sites.size(); ++i) {
    const NormSite& site = original_.sites[i];
    const bool right = sites[i].is_object() &&
                       sites[i].value("module", Json()) == Json(original_.known_as(site.module)) &&
                       sites[i].value("epsilon", Json()) == Json(site.epsilon);
    if (!right) fail(fmt::format("{}: the site of {} differs from the model's", kProvenanceFile, site.module));
  }
}

void Verifier::run(Report& report) {
  check_document();
  check_provenance();
  try {
    converted_ = std::make_unique<Model>(original_.recipe, seen_config_, checkpoint_, false);
  } catch (const Refusal& refusal) {
    fail(fmt::format("the recipe does not fit it: {}", refusal.what()));
    finish(report);
    return;
  }
  if (converted_->sites.size() != original_.sites.size() || converted_->streams.size() != original_.streams.size() ||
      converted_->ties.size() != original_.ties.size()) {
    fail("the two have other norms or streams");
    finish(report);
    return;
  }
  for (const std::string& fault : view_faults_) fail(fault);
  collect_tabulated();
  check_names();
  check_ties();
  collect();
  std::vector<std::function<void()>> jobs;
  for (const auto& writer : writers_) {
    jobs.emplace_back([&] {
      if (!folded_into(writer.first)) check_writer(writer.second.first, writer.second.second);
    });
  }
  for (std::size_t i = 0; i < original_.sites.size(); ++i) {
    const NormSite& site = original_.sites[i];
    jobs.emplace_back([&, i] { check_site(original_.sites[i], converted_->sites[i]); });
    for (const StoredTensor* tensor : {site.weight, site.bias}) {
      if (tensor != nullptr) looked_at_.insert(tensor->name);
    }
    for (const Part& reader : site.readers) {
      for (const StoredTensor* tensor : {reader.weight, reader.bias}) {
        // A tied head is looked at where it is read; as a table it must be as it was, unless it is a writer.
        if (tensor != nullptr && !(reader.tie >= 0 && tensor == reader.weight)) looked_at_.insert(tensor->name);
      }
    }
  }
  for (const TieParts& tie : original_.ties) {
    // A copy of the table that becomes the head is compared where it is read.
    if (tie.tied) looked_at_.insert(tie.head_name);
    for (const StoredTensor* tensor : tie.stored) {
      if (looked_at_.contains(tie.table->name)) looked_at_.insert(tensor->name);
    }
  }
  check_stored(jobs);
  for (const StoredTensor& tensor : original_.checkpoint.tensors()) {
    const StoredTensor* after = counterpart(tensor.name);
    if (looked_at_.contains(tensor.name) || after == nullptr) continue;
    jobs.emplace_back([&, after] {
      if (!same(&tensor, after)) fail(fmt::format("{}: it changed, and it must be the same byte by byte", tensor.name));
    });
  }
  const std::size_t threads = thread_count(request_.threads, jobs.size());
  memory_ = request_.chunk / threads;
  run_parallel(jobs.size(), threads, [&](std::size_t i) { jobs[i](); });
  finish(report);
}

void Verifier::finish(Report& report) {
  std::sort(failures_.begin(), failures_.end());
  report.json["family"] = original_.recipe.family;
  report.json["same"] = failures_.empty();
  report.json["modules_compared"] = checked_;
  report.json["vectors"] = request_.vectors;
  report.json["worst"] = {{"ratio", worst_.ratio}, {"tensor", worst_.where}};
  report.json["worst_mean"] = {{"ratio", worst_mean_.ratio}, {"tensor", worst_mean_.where}};
  report.json["failures"] = failures_;
  std::string& text = report.text;
  text += fmt::format("{}: {} modules compared with {} random vectors each\n", original_.recipe.family, checked_,
                      request_.vectors);
  text += fmt::format("largest difference: {:.3g} of what rounding may cause{}\n", worst_.ratio,
                      worst_.where.empty() ? "" : " (" + worst_.where + ")");
  if (!fold_) {
    text += fmt::format("largest mean: {:.3g} of the limit{}\n", worst_mean_.ratio,
                        worst_mean_.where.empty() ? "" : " (" + worst_mean_.where + ")");
  }
  std::vector<std::string> warnings;
  if (std::filesystem::exists(request_.output + "/" + kAdapterFolder)) {
    warnings.push_back(fmt::format("the adapter in {}/ is no part of the proof", kAdapterFolder));
  }
  report.json["warnings"] = warnings;
  for (const std::string& warning : warnings) text += "warning: " + warning + "\n";
  for (const std::string& failure : failures_) text += "DIFFERS: " + failure + "\n";
  text += failures_.empty() ? "the two compute the same\n" : "";
  if (!failures_.empty()) {
    tools::fail(tools::ExitCode::kOutsideBudget, "{} differences, the first: {}", failures_.size(), failures_.front());
  }
}

void verify_checkpoint(const Model& original, const Request& request, Report& report) {
  Verifier(original, request).run(report);
}

}  // namespace rmsnorm::convert::checkpoint
