// Folding of the norms' biases and weights into what reads them.
#include <algorithm>

#include "convert/checkpoint/planner.h"

namespace rmsnorm::convert::checkpoint {

using tools::in_quotes;

// The tensor that this reader's weight is in the output.
std::string Planner::weight_target(const Part& reader) const {
  if (reader.tie < 0) return reader.weight->name;
  const TieParts& tie = model_.ties[static_cast<std::size_t>(reader.tie)];
  return untied_[static_cast<std::size_t>(reader.tie)] ? tie.head_name : tie.table->name;
}

int Planner::bias_key_of(const Part& reader) const {
  for (std::size_t k = 0; k < model_.bias_keys.size(); ++k) {
    for (const Part& part : model_.bias_keys[k]) {
      if (part.module == reader.module) return static_cast<int>(k);
    }
  }
  return -1;
}

// Only in place of a bias that the class has no place for, and where the writers are looked at anyhow.
const Part* Planner::projection_of(const Part& reader) const {
  if (purpose_ != Purpose::kConvert || bias_key_of(reader) >= 0) return nullptr;
  return model_.projection_of(reader);
}

std::optional<Planner::Obstacle> Planner::bias_obstacle(const Part& reader) const {
  if (reader.bias != nullptr || reader.item->bias_cancels || bias_key_of(reader) >= 0) return {};
  if (projection_of(reader) != nullptr) return {};
  if (!reader.item->bias.empty() && request_.target == Target::kHf && purpose_ == Purpose::kConvert) return {};
  return Obstacle{RefusalCode::kNoBiasSlot, reader.module,
                  "it has no bias that could take the norm's, and the class makes none; use --affine keep" +
                      std::string(reader.item->bias.empty() || purpose_ == Purpose::kFold
                                      ? ""
                                      : ", or --target hf, whose program adds one")};
}

// GPT2Model returns what GPT2LMHeadModel gives to its head.
bool Planner::returns_norm(const Part& reader) const {
  const Json architectures = model_.config.json().value("architectures", Json());
  if (reader.tie < 0 || !architectures.is_array()) return false;
  return std::any_of(architectures.begin(), architectures.end(), [](const Json& name) {
    if (!name.is_string()) return false;
    const std::string_view text = name.get_ref<const std::string&>();
    return text.ends_with("Model") && !text.ends_with("LMHeadModel");
  });
}

std::optional<Planner::Obstacle> Planner::obstacle(const NormSite& site, bool full) const {
  if (!site.exposed.empty()) return Obstacle{RefusalCode::kUnsafePath, site.module, site.exposed};
  for (const Part& reader : site.readers) {
    const std::string target = weight_target(reader);
    if (returns_norm(reader)) {
      return Obstacle{RefusalCode::kUnsafePath, site.module, "its output is the declared class's last_hidden_state"};
    }
    for (const NormSite* other :
         read_by_.at(reader.tie < 0 ? target : model_.ties[static_cast<std::size_t>(reader.tie)].table->name)) {
      if (other != &site) {
        return Obstacle{
            RefusalCode::kUnsafePath, target,
            fmt::format("{} reads it, too: one linear behind two norms can take nothing of either", other->module)};
      }
    }
    if (reader.matrix.inputs() != site.width * reader.item->chunks) {
      return Obstacle{RefusalCode::kUnsafePath, target,
                      "a convolution pads its input, which a bias would have to fill"};
    }
    if (full && reader.tie >= 0 && !untied_[static_cast<std::size_t>(reader.tie)]) {
      return Obstacle{RefusalCode::kUnsafePath, target,
                      "the head is the embedding, which the norm's weight must not change; use --untie"};
    }
    if (!reader.weight->row_type()) {
      return Obstacle{RefusalCode::kQuantisedWriter, target,
                      fmt::format("its type is {} and a norm would be folded into it; it must be F32, F16, BF16 or F64",
                                  in_quotes(reader.weight->dtype))};
    }
    if (site.bias != nullptr) {
      if (auto found = bias_obstacle(reader)) return found;
    }
  }
  return {};
}

void Planner::give_biases(int key) {
  set_config(model_.recipe.bias_keys[static_cast<std::size_t>(key)].key, true);
  for (const Part& part : model_.bias_keys[static_cast<std::size_t>(key)]) {
    if (part.bias == nullptr && !by_name_.contains(part.bias_name)) {
      add_action(part.bias_name, nullptr, *part.weight, {part.matrix.outputs()});
    }
  }
}

Action& Planner::reader_bias(const Part& reader) {
  if (reader.bias != nullptr) return action(reader.bias->name);
  const int key = bias_key_of(reader);
  if (key >= 0) give_biases(key);
  const std::string name = reader.tie >= 0 ? reader.item->bias : reader.bias_name;
  if (!by_name_.contains(name)) {
    tools::Shape shape{reader.matrix.outputs()};
    if (reader.matrix.batch > 1) shape.insert(shape.begin(), reader.matrix.batch);
    add_action(name, nullptr, *reader.weight, shape);
    plan_.new_biases.push_back(model_.known_as(reader.module));
  }
  return action(name);
}

void Planner::fold_bias(const NormSite& site) {
  for (const Part& reader : site.readers) {
    if (reader.item->bias_cancels && reader.bias == nullptr && bias_key_of(reader) < 0) continue;
    check_float(*reader.weight, "reads a norm that would be folded");
    if (const Part* writer = projection_of(reader)) {
      const Range all{0, writer->matrix.outputs()};
      action(writer->bias->name)
          .terms.push_back(
              {writer->weight, writer->matrix, site.bias, all, reader.item->chunks, {}, reader.weight, reader.matrix});
      continue;
    }
    Action& bias = reader_bias(reader);
    bias.matrix = matrix_of(Layout::kTable, bias.shape);
    if (bias.matrix.cols != reader.matrix.outputs() || bias.matrix.rows != reader.matrix.batch) {
      bias.matrix = {1, reader.matrix.batch, reader.matrix.outputs(), false};
    }
    bias.terms.push_back({reader.weight, reader.matrix, site.bias, reader.outputs.front(), reader.item->chunks});
  }
  action(site.bias->name).fill = 0;
}

void Planner::fold_weight(const NormSite& site) {
  for (const Part& reader : site.readers) {
    Action& weight = action(weight_target(reader));
    check_float(*reader.weight, "reads a norm that would be folded");
    weight.matrix = reader.matrix;
    weight.folds.push_back({site.weight, site.site->gain, reader.outputs.front(), reader.item->chunks});
  }
  action(site.weight->name).fill = site.site->gain == Gain::kWeight ? 1 : 0;
}

void Planner::plan_site(SitePlan& planned) {
  const NormSite& site = *planned.site;
  if (affine_ == Affine::kKeep || site.weight == nullptr || site.stream < 0) return;
  if (affine_ == Affine::kBias && site.bias == nullptr) return;
  if (site.readers.empty()) {
    planned.note = "keeps its parameters: its output leaves the model";
    return;
  }
  const bool full = affine_ == Affine::kFull;
  if (const auto found = obstacle(site, full)) {
    if (request_.affine != Affine::kAuto) refuse(found->code, found->site, "{}", found->text);
    planned.note = "keeps its parameters: " + found->text;
    return;
  }
  if (site.bias != nullptr) fold_bias(site);
  if (full) fold_weight(site);
  planned.folded = full ? Folded::kFull : Folded::kBias;
}

}  // namespace rmsnorm::convert::checkpoint
