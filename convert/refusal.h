// Why a model is not converted: a code that programs can read, the place, and a sentence for people.
#ifndef RMSNORM_CONVERT_REFUSAL_H_
#define RMSNORM_CONVERT_REFUSAL_H_

#include <string>
#include <string_view>

#include "tools/error.h"

namespace rmsnorm::convert {

enum class RefusalCode : int {
  kPostNorm = 1,
  kRawTap,
  kOpaqueEntry,
  kTie,
  kNoBiasSlot,
  kUnsafePath,
  kQuantisedWriter,
  kUnknown,
  kNormKind,
  kNonFinite,
  kAlreadyConverted,
  kUnsupportedOption,
  kNoGain,
  kMalformed,
};

struct RefusalText {
  RefusalCode code;
  const char* name;     // as in messages and JSON
  const char* meaning;  // for --help and docs/conversion.md
};

inline constexpr RefusalText kRefusals[] = {
    {RefusalCode::kPostNorm, "R01", "post-norm: the residual branch is a norm output with a non-uniform weight"},
    {RefusalCode::kRawTap, "R02", "raw tap: the stream is read or returned without a norm"},
    {RefusalCode::kOpaqueEntry, "R03", "opaque entry: the entry cannot be centred by weights and --entry is weights"},
    {RefusalCode::kTie, "R04",
     "tie: a tied head is stored and differs, or must stay tied (--keep-tie) with --entry weights"},
    {RefusalCode::kNoBiasSlot, "R05", "no bias slot: the bias is to be folded and a reader cannot take it"},
    {RefusalCode::kUnsafePath, "R06", "unsafe path: padding, masking, a shared linear or an output behind the norm"},
    {RefusalCode::kQuantisedWriter, "R07", "quantised writer: a tensor to be changed is integer, f8 or packed"},
    {RefusalCode::kUnknown, "R08", "unknown: a tensor that the recipe does not name, or not with this shape"},
    {RefusalCode::kNormKind, "R09", "norm kind: epsilon unknown or outside the root, another variance or other axes"},
    {RefusalCode::kNonFinite, "R10", "not finite: NaN or infinity in a tensor, or overflow of the output type"},
    {RefusalCode::kAlreadyConverted, "R11", "already converted: the file says that it comes from this program"},
    {RefusalCode::kUnsupportedOption, "R12", "unsupported option: the configuration asks for another function"},
    {RefusalCode::kNoGain, "R13", "no gain: as many operations would be inserted as norms converted"},
    {RefusalCode::kMalformed, "R14", "malformed: overlaps, holes, duplicates, truncation, index and shard disagree"},
};

constexpr const char* refusal_name(RefusalCode code) { return kRefusals[static_cast<int>(code) - 1].name; }

// Exit code kBadInput; the message reads "R04 at lm_head: <sentence>".
class Refusal : public tools::ToolError {
 public:
  Refusal(RefusalCode code, std::string site, const std::string& sentence)
      : ToolError(tools::ExitCode::kBadInput, fmt::format("{} at {}: {}", refusal_name(code), site, sentence)),
        refusal_(code),
        site_(std::move(site)) {}
  RefusalCode refusal() const { return refusal_; }
  const std::string& site() const { return site_; }

 private:
  RefusalCode refusal_;
  std::string site_;  // a tensor, node or key of the configuration
};

// The sentence says why, with the value, and what can be done.
template <class... Args>
[[noreturn]] void refuse(RefusalCode code, std::string_view site, fmt::format_string<Args...> sentence,
                         Args&&... args) {
  throw Refusal(code, std::string(site), fmt::format(sentence, std::forward<Args>(args)...));
}

}  // namespace rmsnorm::convert

#endif  // RMSNORM_CONVERT_REFUSAL_H_
