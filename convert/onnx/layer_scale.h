// LayerScale in a graph: Mul(branch, l) with a constant vector l, behind a linear layer with constants. It cannot be
// centred where it stands, for l differs along the axis; moved into the layer's weight and bias it can:
// l * (a W + b) = s * (a (W diag(l) / s) + b l / s), with s the power of two nearest to l's median.
#ifndef RMSNORM_CONVERT_ONNX_LAYER_SCALE_H_
#define RMSNORM_CONVERT_ONNX_LAYER_SCALE_H_

#include <string>
#include <vector>

#include "convert/onnx/stream.h"

namespace rmsnorm::convert::onnx {

struct MovedScale {
  struct Place {
    std::string output;  // of the node that reads it
    int slot = 0;
    std::string before, now;  // names of constants
  };
  std::vector<Place> places;            // the weight first
  std::vector<pb::TensorProto> unread;  // initialisers that nobody reads any more
};

// Moves every such vector into new constants, whose exact numbers Model::exact has. With `converted`: those alone that
// this model has moved; that it has done so rightly is for the proof.
std::vector<MovedScale> move_layer_scales(Model& model, Model* converted = nullptr);

// Those whose weight no converted stream centres go back to where they were.
void restore_layer_scales(Model& model, const std::vector<MovedScale>& moved, const Plan& plan);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_LAYER_SCALE_H_
