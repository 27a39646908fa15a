// Conversion of LayerNorm models to RMSNorm models that compute the same function: what the command line calls.
// IN is a Hugging Face directory (namespace checkpoint) or an ONNX file (namespace onnx).
#ifndef RMSNORM_CONVERT_CONVERT_H_
#define RMSNORM_CONVERT_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "rmsnorm/rmsnorm.h"

namespace rmsnorm::convert {

enum class Affine { kAuto, kKeep, kBias, kFull };
enum class Entry { kAuto, kWeights, kOp };
enum class Tie { kAuto, kUntie, kKeep };
enum class Target { kAuto, kStock, kHf, kTimm, kLlama, kOnnxRms23, kOnnxSimplified, kOnnxPlain };

inline constexpr std::size_t kDefaultChunkBytes = std::size_t{64} << 20;
inline constexpr int kDefaultVectors = 8;

struct Request {
  std::string input;
  std::string output;  // empty for inspect; the converted model for verify
  Affine affine = Affine::kAuto;
  Entry entry = Entry::kAuto;
  Tie tie = Tie::kAuto;
  Target target = Target::kAuto;
  std::optional<rn_type> type;  // of the tensors that are changed; nothing: as in the input
  bool carry_rounding = false;
  std::string recipe;   // a file; empty: the compiled-in recipe of the family
  std::string adapter;  // a LoRA directory; empty: none
  std::string drawing;  // inspect of an ONNX file: where the SVG goes; empty: nowhere
  std::size_t chunk = kDefaultChunkBytes;
  int threads = 0;  // 0: as many as the machine has
  int vectors = kDefaultVectors;
};

// The same content twice: for programs and for people.
struct Report {
  nlohmann::ordered_json json;
  std::string text;
};

// Each throws Refusal for a model that cannot be converted and tools::ToolError for everything else; verify throws
// ToolError with kOutsideBudget, after the report has been filled, where the models differ.
namespace checkpoint {
void inspect(const Request& request, Report& report);
void convert(const Request& request, Report& report);
void fold(const Request& request, Report& report);
void verify(const Request& request, Report& report);
}  // namespace checkpoint

namespace onnx {
void inspect(const Request& request, Report& report);
void convert(const Request& request, Report& report);
void fold(const Request& request, Report& report);
void verify(const Request& request, Report& report);
}  // namespace onnx

}  // namespace rmsnorm::convert

#endif  // RMSNORM_CONVERT_CONVERT_H_
