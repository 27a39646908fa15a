// Finds the LayerNorms of a graph, as one operator or written out, and the RMSNorms, which the proof needs.
#ifndef RMSNORM_CONVERT_ONNX_RECOGNISE_H_
#define RMSNORM_CONVERT_ONNX_RECOGNISE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/onnx/linear.h"

namespace rmsnorm::convert::onnx {

// Sub(x, ReduceMean(x)): x centred along the axis. One mean may serve several Subs; nothing else reads it.
struct Centring {
  std::string x;
  int axis = -1;
  int mean = -1;          // the node
  std::vector<int> subs;  // the nodes
};

enum class Form { kOperator, kWrittenOut };

struct Norm {
  Form form = Form::kOperator;
  std::string name;    // for people
  std::string origin;  // "LayerNormalization", "written out", "SkipLayerNormalization" ..
  std::string x;
  std::string core;    // the normalised x before weight and bias; for an operator empty
  std::string y;       // behind the weight (written out), or the operator's output
  std::string weight;  // a constant, or empty
  std::string bias;    // a constant, or empty; written out, its Add stays outside
  std::string whole;   // the tensor behind weight and bias
  double epsilon = 0;
  int root = -1;              // the node of the operator, or the Div or Mul that gives `core`
  int scaling = -1;           // written out: the Mul by the weight
  std::vector<int> interior;  // written out: nodes between x and core, root included
  bool ignores_mean = true;   // the output is the same whatever the mean of x
  std::string fault;          // why it is not converted (R09); empty: it can be
};

struct Norms {
  std::vector<Norm> all;              // in the order of the nodes
  std::map<int, Centring> centrings;  // by node: the mean and each Sub
};

Norms recognise_norms(const Graph& graph, const Shapes& shapes);

// x / sqrt(mean(x^2) + epsilon), as RMSNormalization, SimplifiedLayerNormalization or written out.
struct Rms {
  std::string x, weight;
  double epsilon = 0;
};
std::optional<Rms> recognise_rms(const Graph& graph, const Shapes& shapes, int root);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_RECOGNISE_H_
