// Words of the command line, of recipes and of reports, beside the values they stand for: one list for each.
#ifndef RMSNORM_CONVERT_NAMES_H_
#define RMSNORM_CONVERT_NAMES_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "convert/convert.h"

namespace rmsnorm::convert {

template <class Value>
struct Name {
  const char* name;
  Value value;
};

template <class Value>
using Names = std::span<const Name<Value>>;

template <class Value>
std::optional<Value> value_named(Names<Value> names, std::string_view text) {
  for (const auto& one : names) {
    if (text == one.name) return one.value;
  }
  return {};
}

// The value must be in the list.
template <class Value>
const char* name_of(Names<Value> names, Value value) {
  for (const auto& one : names) {
    if (value == one.value) return one.name;
  }
  return nullptr;
}

// "keep, bias, full"
template <class Value>
std::string all_names(Names<Value> names) {
  std::string text;
  for (const auto& one : names) text += (text.empty() ? "" : ", ") + std::string(one.name);
  return text;
}

inline constexpr Name<Affine> kAffineList[] = {
    {"auto", Affine::kAuto}, {"keep", Affine::kKeep}, {"bias", Affine::kBias}, {"full", Affine::kFull}};
inline constexpr Names<Affine> kAffines = kAffineList;
inline constexpr Names<Affine> kDecidedAffines = kAffines.subspan(1);  // without auto

inline constexpr Name<Entry> kEntryList[] = {{"auto", Entry::kAuto}, {"weights", Entry::kWeights}, {"op", Entry::kOp}};
inline constexpr Names<Entry> kEntries = kEntryList;

inline constexpr Name<Target> kTargetList[] = {{"auto", Target::kAuto},
                                               {"stock", Target::kStock},
                                               {"hf", Target::kHf},
                                               {"timm", Target::kTimm},
                                               {"llama", Target::kLlama},
                                               {"onnx-rms23", Target::kOnnxRms23},
                                               {"onnx-simplified", Target::kOnnxSimplified},
                                               {"onnx-plain", Target::kOnnxPlain}};
inline constexpr Names<Target> kTargets = kTargetList;
inline constexpr Names<Target> kCheckpointTargets = kTargets.subspan(1, 4);  // without auto

}  // namespace rmsnorm::convert

#endif  // RMSNORM_CONVERT_NAMES_H_
