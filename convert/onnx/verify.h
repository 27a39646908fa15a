// Proves that one graph computes what another computes, without running either: each tensor of the new graph is shown
// to be a tensor of the original, one with its mean along an axis subtracted, or one with some number for each line
// along an axis added, which only readers that ignore it may see. It knows nothing of the plan; the rules
// of operators (linear.h) and the recogniser are shared with it.
#ifndef RMSNORM_CONVERT_ONNX_VERIFY_H_
#define RMSNORM_CONVERT_ONNX_VERIFY_H_

#include <string>
#include <vector>

#include "convert/onnx/recognise.h"

namespace rmsnorm::convert::onnx {

struct Fault {
  std::string site;
  std::string what;
};

struct Proof {
  int nodes = 0;           // shown to compute the same
  int carried = 0;         // of them, with inputs that differ from the original's by a mean
  int norms = 0;           // RMSNorms of centred tensors shown to be the original's LayerNorms
  int constants = 0;       // shown to be the original's, centred
  int operations = 0;      // subtractions of a mean
  double worst_mean = 0;   // of a centred constant's lines, in units of roundoff times their rms
  double worst_error = 0;  // of a centred constant's elements, in units of what one rounding allows
  std::vector<Fault> faults;
};

Proof prove_equal(Model& original, Model& converted, int vectors);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_VERIFY_H_
