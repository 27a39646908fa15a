// An ONNX file in memory: parsed and checked, and written again. Whatever is not understood is kept as it was.
#ifndef RMSNORM_CONVERT_ONNX_MODEL_H_
#define RMSNORM_CONVERT_ONNX_MODEL_H_

#include <map>
#include <string>

#include "convert/onnx/array.h"
#include "tools/formats/source.h"

namespace rmsnorm::convert::onnx {

// Keys of metadata_props that say where a converted file comes from start with this.
inline constexpr char kProvenance[] = "rmsnorm.converted";

// Its value where each rounding error went to the line's next element; absent: each element was rounded by itself.
inline constexpr char kRounding[] = "rmsnorm.rounding";
inline constexpr char kCarried[] = "carried";

// The newest that this program knows, those of ONNX 1.23: what later ones change is not known, and R14.
inline constexpr int kNewestOpset = 28;
inline constexpr int kNewestIrVersion = 14;

// The largest message that protobuf reads or writes.
inline constexpr std::uint64_t kMaxMessage = (std::uint64_t{1} << 31) - 1;

struct Model {
  std::string path;    // for messages
  std::string folder;  // external data lies below it
  pb::ModelProto proto;
  // Numbers of initialisers that the program has made, before they are rounded.
  std::map<std::string, Array> exact = {};
};

// Throws a Refusal (R14) for bytes that are no ONNX model, for shapes that do not fit their data, for names that are
// given twice and for cycles. Nodes come in an order in which each is behind those that it reads.
Model load_model(const std::string& path);
Model parse_model(const tools::Source& source, std::string folder);

// True where both files hold the same bytes and refer to the same files of external data.
bool identical(const Model& a, const Model& b);

// The value of a metadata property, or nullptr.
const std::string* metadata(const pb::ModelProto& model, std::string_view key);

// Stable: nodes move only behind what they read. R14 for a cycle.
void sort_nodes(pb::GraphProto& graph);

// Writes the model, and beside it the files of external data that its folder lacks. Appears whole or not at all.
void save_model(const Model& model, const std::string& path);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_MODEL_H_
