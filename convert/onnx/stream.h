// Streams: the tensors that are added up and read by norms, and what has to be done so that all of them have a mean
// of 0.
#ifndef RMSNORM_CONVERT_ONNX_STREAM_H_
#define RMSNORM_CONVERT_ONNX_STREAM_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/convert.h"
#include "convert/onnx/recognise.h"
#include "convert/refusal.h"

namespace rmsnorm::convert::onnx {

// Subtract the mean of a tensor by an operation, for those who read it in the stream.
struct Insert {
  std::string tensor;
  int axis = -1;
  std::vector<Use> uses;   // of nodes that carry the stream on
  std::vector<int> norms;  // that read it directly
  std::string why;
};

// Subtract the mean from a constant.
struct Edit {
  std::string tensor;
  int axis = -1;
  std::vector<Use> uses;
  bool shared = false;  // others read it, too: they keep the original
};

struct Stream {
  std::vector<int> norms;
  std::vector<Insert> inserts;
  std::vector<Edit> edits;
  std::vector<std::string> taps;  // tensors that are read raw
  bool converted = false;
  RefusalCode code = RefusalCode::kNoGain;
  std::string why;  // it is not converted
};

struct Verdict {
  int stream = -1;
  bool converted = false;
  RefusalCode code = RefusalCode::kNormKind;
  std::string why;
};

struct Plan {
  std::vector<Stream> streams;
  std::vector<Verdict> verdicts;  // one for each norm
  int converted = 0;
};

struct PlanOptions {
  bool weights_only = false;  // no operation may be inserted
  bool keep_shared = false;   // constants that others read, too, stay as they are
};

// Tensors that may be shifted along an axis without any effect on the graph's outputs.
class Sensitivity {
 public:
  Sensitivity(const Graph& graph, const Shapes& shapes, const Norms& norms);
  // Along `axis` (-1: the last).
  bool may_shift(const std::string& tensor, int axis) const;
  // The first reader that minds, for people.
  std::string who_minds(const std::string& tensor, int axis) const;

 private:
  std::uint32_t mask(const TensorEntry& entry) const;
  std::uint32_t of_use(Use use) const;

  const Graph& graph_;
  const Shapes& shapes_;
  const Norms& norms_;
  std::map<int, int> norm_of_root_;
  std::vector<std::uint32_t> node_masks_;  // bit k: all outputs may be shifted along axis -1 - k
};

Plan make_plan(const Graph& graph, const Shapes& shapes, const Norms& norms, const PlanOptions& options);

// True if the norm's output has a mean of 0 whatever its input is: its weight is one number, its bias has no mean.
bool has_centred_output(const Graph& graph, const Norm& norm);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_STREAM_H_
