#include "convert/onnx/formulas.h"

namespace rmsnorm::convert::onnx {

namespace {

constexpr int kMostCasts = 8;  // one after the other; hostile files chain any number of them

}  // namespace

int Formulas::producer(std::string name, std::vector<int>* through) const {
  for (int casts = 0;; ++casts) {
    const int n = graph_.tensor(name).producer;
    if (n < 0 || casts == kMostCasts || graph_.op(n) != "Cast" ||
        !is_float(static_cast<int>(int_attribute(graph_.node(n), "to", 0)))) {
      return n;
    }
    if (through != nullptr) through->push_back(n);
    name = graph_.input(n, 0);
  }
}

std::string Formulas::source(std::string name) const {
  int n = graph_.tensor(name).producer;
  for (int casts = 0; casts < kMostCasts && is_op(n, "Cast") && is_float(shapes_.type(graph_.input(n, 0))); ++casts) {
    name = graph_.input(n, 0);
    n = graph_.tensor(name).producer;
  }
  return name;
}

bool Formulas::is_vector(const std::string& name) const {
  const auto& lengths = shapes_.info(name).lengths;
  if (!lengths) return false;
  for (std::size_t i = 0; i + 1 < lengths->size(); ++i) {
    if ((*lengths)[i] != 1) return false;
  }
  return true;
}

bool Formulas::adds_no_axis(const std::string& name, const std::string& beside) const {
  const auto rank = shapes_.rank(name), limit = shapes_.rank(beside);
  return rank && (*rank <= 1 || (limit && *rank <= *limit));
}

std::optional<double> Formulas::number_beside(int n, int slot) const {
  const std::string& name = graph_.input(n, 1 - slot);
  return adds_no_axis(name, graph_.input(n, slot)) ? graph_.scalar(name) : std::nullopt;
}

std::optional<Formulas::Root> Formulas::square_root(const std::string& name) const {
  Root root;
  int n = producer(name, &root.nodes);
  if (is_op(n, "Add")) {
    const int other = number_beside(n, 0) ? 0 : number_beside(n, 1) ? 1 : -1;
    if (other < 0) return std::nullopt;
    root.outside = true;
    root.nodes.push_back(n);
    n = producer(graph_.input(n, other), &root.nodes);
  }
  const bool power = is_op(n, "Pow") && number_beside(n, 0) == std::optional<double>(0.5);
  if (!power && !is_op(n, "Sqrt")) return std::nullopt;
  root.nodes.push_back(n);
  root.inside = graph_.input(n, 0);
  return root;
}

std::optional<Formulas::Root> Formulas::inverse_root(const std::string& name) const {
  std::vector<int> nodes;
  const int n = producer(name, &nodes);
  if (n < 0) return std::nullopt;
  nodes.push_back(n);
  std::optional<Root> root;
  if (graph_.op(n) == "Pow" && number_beside(n, 0) == std::optional<double>(-0.5)) {
    root = Root{graph_.input(n, 0), false, {}};
  } else if (graph_.op(n) == "Reciprocal") {
    root = square_root(graph_.input(n, 0));
  } else if (graph_.op(n) == "Div" && number_beside(n, 1) == std::optional<double>(1)) {
    root = square_root(graph_.input(n, 1));
  }
  if (root) root->nodes.insert(root->nodes.end(), nodes.begin(), nodes.end());
  return root;
}

std::optional<std::string> Formulas::squared(const std::string& name, std::vector<int>& nodes) const {
  const int n = producer(name, &nodes);
  const bool power = is_op(n, "Pow") && number_beside(n, 0) == std::optional<double>(2);
  const bool product = is_op(n, "Mul") && graph_.input(n, 0) == graph_.input(n, 1);
  if (!power && !product) return std::nullopt;
  nodes.push_back(n);
  return graph_.input(n, 0);
}

std::vector<Formulas::Quotient> Formulas::quotients(int n) const {
  std::vector<Quotient> found;
  if (graph_.op(n) == "Div") {
    if (auto root = square_root(graph_.input(n, 1))) found.push_back({graph_.input(n, 0), std::move(*root)});
  } else if (graph_.op(n) == "Mul") {
    for (const int slot : {0, 1}) {
      if (auto root = inverse_root(graph_.input(n, 1 - slot))) {
        found.push_back({graph_.input(n, slot), std::move(*root)});
      }
    }
  }
  return found;
}

std::optional<Formulas::Moment> Formulas::moment(const Root& root) const {
  Moment moment;
  moment.nodes = root.nodes;
  std::string at = root.inside;
  int n = producer(at, &moment.nodes);
  if (is_op(n, "Add")) {
    const int slot = number_beside(n, 0) ? 0 : number_beside(n, 1) ? 1 : -1;
    if (slot >= 0) {
      moment.epsilon = *number_beside(n, slot);
      at = graph_.input(n, slot);
    } else {
      moment.fault = "its epsilon is not constant";
      at = graph_.input(n, 0);
    }
    moment.nodes.push_back(n);
  } else {
    moment.fault = "it adds no epsilon to the variance";
  }
  if (root.outside) moment.fault = "it adds epsilon to the root, not under it";
  n = producer(at, &moment.nodes);
  // Some multiply the mean by n / (n - 1), with an n that is constant or computed.
  for (int steps = 0; n >= 0 && steps < 4 && (graph_.op(n) == "Mul" || graph_.op(n) == "Div"); ++steps) {
    if (const auto factor = number_beside(n, 0); factor == std::optional<double>(1)) {
      // a step that changes nothing
    } else {
      moment.fault = "its variance is scaled (unbiased: divided by n - 1); it must be the mean of the squares";
    }
    moment.nodes.push_back(n);
    n = producer(graph_.input(n, 0), &moment.nodes);
  }
  if (is_op(n, "ReduceSum")) {
    moment.fault = "its variance is a sum that is divided by something else; it must be the mean of the squares";
  } else if (!is_op(n, "ReduceMean") && !is_op(n, "GlobalAveragePool")) {
    return std::nullopt;
  }
  moment.nodes.push_back(n);
  const auto axis = averaged_axis(graph_, shapes_, n);
  if (!axis) moment.fault = "its variance is taken over several or unknown axes; it must be over the last alone";
  moment.axis = axis.value_or(0);
  const auto t = squared(graph_.input(n, 0), moment.nodes);
  if (!t) return std::nullopt;
  moment.squared = *t;
  return moment;
}

}  // namespace rmsnorm::convert::onnx
