#include "convert/onnx/folded.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "convert/onnx/formulas.h"

namespace rmsnorm::convert::onnx {

namespace {

constexpr int kMostDepth = 4;  // of sums and products within a norm

class Folds {
 public:
  Folds(const Graph& graph, const Shapes& shapes) : graph_(graph), shapes_(shapes), formulas_(graph, shapes) {}

  std::vector<FoldedNorm> run() {
    std::vector<FoldedNorm> found;
    for (int n = 0; n < graph_.size(); ++n) {
      const std::string_view op = graph_.op(n);
      std::optional<FoldedNorm> norm;
      if (op == "Mul" || op == "Div") norm = product(n);
      if (op == "Add" || op == "Sub") norm = sum(n);
      if (op == "Reshape") norm = batch_norm(n);
      if (op == "InstanceNormalization") norm = instance_norm(n);
      if (norm && finish(*norm)) found.push_back(std::move(*norm));
    }
    return found;
  }

 private:
  // sign * (what is none of the others) * weight / sqrt(root)
  struct Product {
    int sign = 1;
    std::string weight;
    std::optional<Formulas::Root> root;
    std::vector<std::string> others;
  };

  // False where two weights or two roots are among the factors.
  bool add_factor(const std::string& name, int depth, Product& product) const {
    if (graph_.is_constant(name)) {
      if (!product.weight.empty()) return false;
      product.weight = name;
      return true;
    }
    if (auto root = formulas_.inverse_root(name)) {
      if (product.root) return false;
      product.root = std::move(root);
      return true;
    }
    const int n = graph_.tensor(name).producer;
    const std::string_view op = n >= 0 && depth < kMostDepth ? graph_.op(n) : "";
    if (op == "Neg") {
      product.sign = -product.sign;
      return add_factor(graph_.input(n, 0), depth + 1, product);
    }
    if (op == "Mul") {
      return add_factor(graph_.input(n, 0), depth + 1, product) && add_factor(graph_.input(n, 1), depth + 1, product);
    }
    if (op == "Div") {
      if (auto root = formulas_.square_root(graph_.input(n, 1))) {
        if (product.root) return false;
        product.root = std::move(root);
        return add_factor(graph_.input(n, 0), depth + 1, product);
      }
    }
    product.others.push_back(name);
    return true;
  }

  // One factor, a root and perhaps a weight; `name` is the product.
  std::optional<Product> product_of(const std::string& name) const {
    Product product;
    const bool fits = add_factor(name, 0, product) && product.root && product.others.size() == 1;
    return fits ? std::optional(std::move(product)) : std::nullopt;
  }

  // x, where the tensor is x - mean(x) along the last axis, behind casts; empty for others.
  std::string centred(const std::string& name) const {
    const int n = formulas_.producer(name);
    if (!formulas_.is_op(n, "Sub")) return "";
    const std::string& x = graph_.input(n, 0);
    return is_mean_of(graph_.input(n, 1), x) ? x : "";
  }

  bool is_mean_of(const std::string& name, const std::string& x) const {
    const int n = formulas_.producer(name);
    return n >= 0 && averaged_axis(graph_, shapes_, n) == -1 &&
           formulas_.source(graph_.input(n, 0)) == formulas_.source(x);
  }

  // root = sqrt(mean((x - mean(x))^2) + epsilon): gives epsilon.
  std::optional<float> epsilon_of(const Formulas::Root& root, const std::string& x) const {
    const auto moment = formulas_.moment(root);
    if (!moment || !moment->fault.empty() || moment->axis != -1) return std::nullopt;
    const std::string squared = centred(moment->squared);
    if (squared.empty() || formulas_.source(squared) != formulas_.source(x)) return std::nullopt;
    return as_float(moment->epsilon);
  }

  // What an attribute holds without another rounding.
  static std::optional<float> as_float(double epsilon) {
    const float narrow = static_cast<float>(epsilon);
    const bool holds = std::isfinite(epsilon) && epsilon >= 0 && static_cast<double>(narrow) == epsilon;
    return holds ? std::optional(narrow) : std::nullopt;
  }

  std::optional<FoldedNorm> product(int n) const {
    // With the weight outside, it is a norm and its weight, which is recognised as such.
    if (graph_.is_constant(graph_.input(n, 0)) || graph_.is_constant(graph_.input(n, 1))) return std::nullopt;
    const auto product = product_of(graph_.output(n));
    if (!product || product->weight.empty() || product->sign < 0) return std::nullopt;
    const std::string x = centred(product->others[0]);
    const auto epsilon = x.empty() ? std::nullopt : epsilon_of(*product->root, x);
    if (!epsilon) return std::nullopt;
    return FoldedNorm{x, graph_.output(n), product->weight, "", 0, *epsilon, n, {}};
  }

  struct Term {
    int sign;
    std::string name;
  };

  void add_terms(const std::string& name, int sign, int depth, std::vector<Term>& terms) const {
    const int n = graph_.tensor(name).producer;
    const std::string_view op = n >= 0 && depth < kMostDepth ? graph_.op(n) : "";
    if (op == "Add" || op == "Sub") {
      add_terms(graph_.input(n, 0), sign, depth + 1, terms);
      add_terms(graph_.input(n, 1), op == "Sub" ? -sign : sign, depth + 1, terms);
    } else if (op == "Neg") {
      add_terms(graph_.input(n, 0), -sign, depth + 1, terms);
    } else {
      terms.push_back({sign, name});
    }
  }

  std::optional<FoldedNorm> sum(int n) const {
    std::vector<Term> terms;
    add_terms(graph_.output(n), 1, 0, terms);
    if (terms.size() != 2 && terms.size() != 3) return std::nullopt;
    FoldedNorm norm;
    std::optional<Product> plus, minus;
    for (const Term& term : terms) {
      if (graph_.is_constant(term.name)) {
        if (term.sign < 0 || !norm.bias.empty()) return std::nullopt;
        norm.bias = term.name;
        continue;
      }
      auto product = product_of(term.name);
      if (!product) return std::nullopt;
      auto& place = product->sign * term.sign > 0 ? plus : minus;
      if (place) return std::nullopt;
      place = std::move(product);
    }
    if (!plus || !minus || plus->weight != minus->weight || plus->root->inside != minus->root->inside ||
        plus->root->outside || minus->root->outside) {
      return std::nullopt;
    }
    norm.x = plus->others[0];
    if (!is_mean_of(minus->others[0], norm.x)) return std::nullopt;
    const auto epsilon = epsilon_of(*plus->root, norm.x);
    if (!epsilon) return std::nullopt;
    norm.y = graph_.output(n);
    norm.weight = plus->weight;
    norm.epsilon = *epsilon;
    norm.root = n;
    return norm;
  }

  // A constant, or one that is stretched to a computed shape, all of whose numbers are `value`.
  bool is_filled(const std::string& name, double value) const {
    const int n = graph_.tensor(name).producer;
    if (formulas_.is_op(n, "ConstantOfShape")) {
      const auto* attribute = find_attribute(graph_.node(n), "value");
      if (attribute == nullptr || !attribute->has_t()) return value == 0;
      const auto array = read_array(attribute->t(), graph_.model().folder);
      return array && array->values.size() == 1 && array->values[0] == value;
    }
    const auto array = graph_.constant(formulas_.is_op(n, "Expand") ? graph_.input(n, 0) : name);
    return array && !array->values.empty() &&
           std::all_of(array->values.begin(), array->values.end(), [&](double v) { return v == value; });
  }

  // The node reduces all axes of a tensor with four but the second.
  bool spares_the_second(int n, bool keeps) const {
    const auto axes = graph_.ints_of(n, "axes", 1);
    if (!axes || axes->size() != 3 || (graph_.op(n) != "Squeeze" && keeps_axes(graph_.node(n)) != keeps)) return false;
    std::set<std::int64_t> named;
    for (const std::int64_t axis : *axes) named.insert(axis < 0 ? axis + 4 : axis);
    return named == std::set<std::int64_t>{0, 2, 3};
  }

  // How many numbers a row of `rows`, [1, n, width, 1], has: the product of its lengths but the second.
  bool is_row_length(const std::string& name, const std::string& rows, std::int64_t width) const {
    if (const auto number = graph_.scalar(name)) return *number == static_cast<double>(width);
    const int product = formulas_.producer(name);
    if (!formulas_.is_op(product, "ReduceProd") || keeps_axes(graph_.node(product)) != std::optional(false))
      return false;
    const auto over = graph_.ints_of(product, "axes", 1);
    const int gather = graph_.tensor(graph_.input(product, 0)).producer;
    if (over != std::vector<std::int64_t>{0} || !formulas_.is_op(gather, "Gather")) return false;
    const int shape = graph_.tensor(graph_.input(gather, 0)).producer;
    const bool whole = formulas_.is_op(shape, "Shape") && graph_.node(shape).attribute_size() == 0;
    return whole && graph_.input(shape, 0) == rows && int_attribute(graph_.node(gather), "axis", 0) == 0 &&
           graph_.integers(graph_.input(gather, 1)) == std::vector<std::int64_t>{0, 2, 3};
  }

  static constexpr float kDefault = 1e-5f;  // epsilon of BatchNormalization and InstanceNormalization

  // With three axes: tf2onnx makes it of some LayerNorms, positions being its channels.
  std::optional<FoldedNorm> instance_norm(int n) const {
    const std::string& x = graph_.input(n, 0);
    const auto width = shapes_.length(x, -1);
    if (shapes_.rank(x) != 3 || !width || !is_filled(graph_.input(n, 1), 1) || !is_filled(graph_.input(n, 2), 0)) {
      return std::nullopt;
    }
    const auto epsilon = as_float(static_cast<double>(float_attribute(graph_.node(n), "epsilon", kDefault)));
    if (!epsilon) return std::nullopt;
    return FoldedNorm{x, graph_.output(n), "", "", *width, *epsilon, n, {}};
  }

  // Keras 2 hands the rows of x as channels to a batch normalization that takes mean and variance from its input.
  std::optional<FoldedNorm> batch_norm(int n) const {
    const int norm = graph_.tensor(graph_.input(n, 0)).producer;
    if (!formulas_.is_op(norm, "BatchNormalization") || graph_.opset() < 9 ||
        int_attribute(graph_.node(norm), "training_mode", 0) != 0) {
      return std::nullopt;
    }
    const std::string& rows = graph_.input(norm, 0);
    const int reshape = graph_.tensor(rows).producer;
    if (!formulas_.is_op(reshape, "Reshape")) return std::nullopt;
    const std::string &x = graph_.input(reshape, 0), &y = graph_.output(n);
    const auto &whole = shapes_.info(x).lengths, &split = shapes_.info(rows).lengths;
    if (!whole || whole->empty() || !split || split->size() != 4 || shapes_.info(y).lengths != whole) {
      return std::nullopt;
    }
    const std::int64_t width = whole->back();
    const bool is_rows = width > 0 && (*split)[0] == 1 && (*split)[2] == width && (*split)[3] == 1;
    if (!is_rows || !is_filled(graph_.input(norm, 1), 1) || !is_filled(graph_.input(norm, 2), 0)) return std::nullopt;
    const int squeeze = graph_.tensor(graph_.input(norm, 3)).producer;
    if (!formulas_.is_op(squeeze, "Squeeze") || !spares_the_second(squeeze, false)) return std::nullopt;
    const std::string& average = graph_.input(squeeze, 0);
    const int mean = graph_.tensor(average).producer;
    if (!formulas_.is_op(mean, "ReduceMean") || graph_.input(mean, 0) != rows || !spares_the_second(mean, true)) {
      return std::nullopt;
    }
    const int quotient = graph_.tensor(graph_.input(norm, 4)).producer;
    if (!formulas_.is_op(quotient, "Div") || !is_row_length(graph_.input(quotient, 1), rows, width)) {
      return std::nullopt;
    }
    const int squares = graph_.tensor(graph_.input(quotient, 0)).producer;
    if (!formulas_.is_op(squares, "ReduceSumSquare") || !spares_the_second(squares, false)) return std::nullopt;
    const int deviation = graph_.tensor(graph_.input(squares, 0)).producer;
    if (!formulas_.is_op(deviation, "Sub") || graph_.input(deviation, 0) != rows ||
        graph_.input(deviation, 1) != average) {
      return std::nullopt;
    }
    const auto epsilon = as_float(static_cast<double>(float_attribute(graph_.node(norm), "epsilon", kDefault)));
    if (!epsilon) return std::nullopt;
    return FoldedNorm{x, y, "", "", width, *epsilon, n, {}};
  }

  // The checks that all forms share, and the nodes.
  bool finish(FoldedNorm& norm) {
    if (norm.weight.empty()) take_weight(norm);
    const int type = shapes_.type(norm.x);
    if (!is_float(type) || shapes_.type(norm.y) != type) return false;
    if (shapes_.length(norm.y, -1) != shapes_.length(norm.x, -1)) return false;  // a weight that stretches x
    for (const std::string* parameter : {&norm.weight, &norm.bias}) {
      if (parameter->empty()) continue;
      const bool fits = shapes_.type(*parameter) == type && formulas_.is_vector(*parameter) &&
                        formulas_.adds_no_axis(*parameter, norm.x);
      if (!fits) return false;
    }
    if (norm.weight.empty() && norm.width == 0) {
      const auto width = shapes_.length(norm.x, -1);
      if (!width) return false;
      norm.width = *width;
    }
    if (norm.weight.empty() && (norm.width <= 0 || norm.width > kMostOnes)) return false;
    return collect(norm);
  }

  // y * weight, where nobody else reads y.
  void take_weight(FoldedNorm& norm) const {
    const TensorEntry& entry = graph_.tensor(norm.y);
    if (!norm.bias.empty() || entry.uses.size() != 1 || entry.is_output || entry.in_subgraph) return;
    const Use use = entry.uses[0];
    const std::string& other = graph_.input(use.node, 1 - use.slot);
    const bool fits = graph_.op(use.node) == "Mul" && graph_.is_constant(other) && formulas_.is_vector(other) &&
                      formulas_.adds_no_axis(other, norm.x) && shapes_.type(other) == shapes_.type(norm.x);
    if (!fits) return;
    norm.weight = other;
    norm.root = use.node;
    norm.y = graph_.output(use.node);
  }

  // All that lies between x and y, but for what others read as well: only shapes may be that.
  bool collect(FoldedNorm& norm) {
    const std::string source = formulas_.source(norm.x);
    std::set<int> inside;
    std::vector<int> waiting{norm.root};
    while (!waiting.empty()) {
      const int n = waiting.back();
      waiting.pop_back();
      if (taken_.count(n) != 0) return false;
      if (!inside.insert(n).second) continue;
      for (const auto& name : graph_.node(n).input()) {
        const bool shape_alone = graph_.op(n) == "Shape" || graph_.op(n) == "Size";
        const int producer = graph_.tensor(name).producer;
        if (shape_alone || producer < 0 || name == norm.x || name == source || graph_.is_constant(name)) continue;
        waiting.push_back(producer);
      }
    }
    const auto leaves = [&](int n) {
      if (n == norm.root) return false;
      const auto& outputs = graph_.node(n).output();
      return std::any_of(outputs.begin(), outputs.end(), [&](const std::string& name) {
        const TensorEntry& entry = graph_.tensor(name);
        return entry.is_output || entry.in_subgraph ||
               std::any_of(entry.uses.begin(), entry.uses.end(),
                           [&](const Use& use) { return inside.count(use.node) == 0; });
      });
    };
    for (bool changed = true; changed;) {  // readers come behind, so one walk from the end does nearly always
      changed = false;
      for (auto at = inside.rbegin(); at != inside.rend();) {
        const int n = *at++;
        if (!leaves(n)) continue;
        const int type = shapes_.type(graph_.output(n));
        if (type == 0 || is_float(type)) return false;
        at = std::make_reverse_iterator(inside.erase(inside.find(n)));
        changed = true;
      }
    }
    norm.nodes.assign(inside.begin(), inside.end());
    taken_.insert(inside.begin(), inside.end());
    return true;
  }

  const Graph& graph_;
  const Shapes& shapes_;
  const Formulas formulas_;
  std::set<int> taken_;
};

}  // namespace

std::vector<FoldedNorm> find_folded_norms(const Graph& graph, const Shapes& shapes) {
  return Folds(graph, shapes).run();
}

}  // namespace rmsnorm::convert::onnx
