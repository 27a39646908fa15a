// Another class that can compute a converted model: its tensors, and its configuration.
#ifndef RMSNORM_CONVERT_CHECKPOINT_TARGET_H_
#define RMSNORM_CONVERT_CHECKPOINT_TARGET_H_

#include <string>
#include <vector>

#include "convert/checkpoint/model.h"
#include "convert/convert.h"

namespace rmsnorm::convert::checkpoint {

// A tensor of the target's class, for one set of indices.
struct TargetName {
  const TargetTensor* rule = nullptr;
  std::string name;
  std::vector<std::string> of;  // names in the recipe, one for each piece; empty for constants
  bool optional = false;        // it may be missing, with all that it is made of
};

// As the command line and recipes have it; auto is hf.
const char* target_name(Target target);
// nullptr: the recipe has no such target.
const TargetRule* find_target(const Recipe& recipe, const std::string& name);

// The values of a pattern's index, one set for each; a pattern without one has one set.
std::vector<Indices> all_indices(const std::string& pattern, const Model& model);

// The tensors of the target, in the recipe's order.
std::vector<TargetName> target_tensors(const TargetRule& rule, const Model& model);

// The target's configuration; null where it is the original's with some keys changed.
Json target_config(const TargetRule& rule, const Model& model);

// The axis along which pieces of this shape are joined.
std::size_t join_axis(const tools::Shape& shape);

// True if the target has no place for this tensor of the original, and the recipe says so.
bool is_left_out(const TargetRule& rule, const Model& model, const std::string& name);

// What the output holds, under the names that the original has: each is a part of a tensor of the target's class.
struct TargetView {
  std::vector<StoredTensor> tensors;
  std::vector<std::string> faults;
};
TargetView view_of_target(const TargetRule& rule, const Model& original, const std::vector<StoredTensor>& output);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_TARGET_H_
