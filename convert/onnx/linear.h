// What each operator does with the mean along an axis: the one table of rules behind tracking, centring and proof.
#ifndef RMSNORM_CONVERT_ONNX_LINEAR_H_
#define RMSNORM_CONVERT_ONNX_LINEAR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "convert/onnx/shapes.h"

namespace rmsnorm::convert::onnx {

// Axes are counted from the end: -1 is the last. None lies further from the end than this.
inline constexpr int kMaxAxis = 16;

// Sets of axes: bit k stands for axis -1 - k; other numbers are no axis.
inline std::uint32_t axis_bit(int axis) { return axis < 0 && axis >= -kMaxAxis ? 1u << (-1 - axis) : 0u; }

struct Operand {
  int slot;
  int axis;
};

// The operands in which the node is linear along the output's axis: if all of them are centred along theirs, the output
// is centred; if one of them is shifted along its axis (by a number for each line), the output is shifted. Nothing: the
// node is not linear so.
std::optional<std::vector<Operand>> linear_operands(const Graph& graph, const Shapes& shapes, int node, int axis);

// True if the node's output does not change when this operand is shifted along the axis: a constant linear layer each
// of whose columns sums to 0, within rounding; Shape and Size.
bool ignores_shift(const Graph& graph, const Shapes& shapes, int node, Operand operand);

// The only axis, counted from the end, along which the node takes a mean, keeping its dimension; nothing for others.
std::optional<int> averaged_axis(const Graph& graph, const Shapes& shapes, int node);

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_LINEAR_H_
