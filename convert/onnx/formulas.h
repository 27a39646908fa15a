// The steps of a norm that is written out in operators: roots, squares and means, whatever casts lie between them.
#ifndef RMSNORM_CONVERT_ONNX_FORMULAS_H_
#define RMSNORM_CONVERT_ONNX_FORMULAS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/onnx/linear.h"

namespace rmsnorm::convert::onnx {

class Formulas {
 public:
  Formulas(const Graph& graph, const Shapes& shapes) : graph_(graph), shapes_(shapes) {}

  // The node that computes the tensor, behind any casts between float types; -1 for none. `through` collects the casts.
  int producer(std::string name, std::vector<int>* through = nullptr) const;
  // The tensor in front of all casts between float types.
  std::string source(std::string name) const;

  bool is_op(int n, std::string_view op) const { return n >= 0 && graph_.op(n) == op; }

  // [H], [1, 1, H], [1] or a number.
  bool is_vector(const std::string& name) const;
  // Beside a tensor that is normalised, a constant of one number may have one axis or none; more would show in the
  // result where the tensor itself has fewer.
  bool adds_no_axis(const std::string& name, const std::string& beside) const;
  // The number that stands beside input `slot` of a node with two.
  std::optional<double> number_beside(int n, int slot) const;

  // What stands under a square root, or in its place.
  struct Root {
    std::string inside;    // variance + epsilon
    bool outside = false;  // epsilon is added to the root
    std::vector<int> nodes;
  };
  // name = sqrt(inside), as Sqrt or Pow 0.5; or sqrt(inside) + a constant.
  std::optional<Root> square_root(const std::string& name) const;
  // name = 1 / sqrt(inside)
  std::optional<Root> inverse_root(const std::string& name) const;

  struct Quotient {
    std::string numerator;
    Root root;
  };
  // The node's output = numerator / sqrt(inside), in all the ways to read it so.
  std::vector<Quotient> quotients(int n) const;

  // inside = mean(t^2) + epsilon: gives t, or says what is different.
  struct Moment {
    std::string squared;
    int axis = -1;
    double epsilon = 0;
    std::string fault;
    std::vector<int> nodes;
  };
  std::optional<Moment> moment(const Root& root) const;

 private:
  // name = t * t for a tensor t; returns t.
  std::optional<std::string> squared(const std::string& name, std::vector<int>& nodes) const;

  const Graph& graph_;
  const Shapes& shapes_;
};

}  // namespace rmsnorm::convert::onnx

#endif  // RMSNORM_CONVERT_ONNX_FORMULAS_H_
