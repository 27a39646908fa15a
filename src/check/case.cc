#include "check/case.h"

#include <charconv>
#include <cstdio>

namespace rmsnorm::check {

namespace {

struct NamedOp {
  Op op;
  std::string_view name;
};

constexpr NamedOp kNamedOps[] = {{Op::kRmsNorm, "rms_norm"},
                                 {Op::kLayerNorm, "layer_norm"},
                                 {Op::kAddRmsNorm, "add_rms_norm"},
                                 {Op::kAddLayerNorm, "add_layer_norm"},
                                 {Op::kCenter, "center"}};

template <class Number>
bool parse_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::string wrong(std::string_view what, std::string_view value, std::string_view rule) {
  return std::string(what) + " is " + std::string(value) + "; it must be " + std::string(rule);
}

std::string parse_layout(std::string_view item, Case& c) {
  const std::size_t equals = item.find('=');
  const std::string_view key = item.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : item.substr(equals + 1);
  if (key == "stride") return parse_number(value, c.stride) ? "" : wrong("stride", value, "a number of elements");
  if (key == "offset") {
    const bool good = parse_number(value, c.offset) && c.offset >= 0;
    return good ? "" : wrong("offset", value, "a number of elements >= 0");
  }
  if (key == "seed") return parse_number(value, c.seed) ? "" : wrong("seed", value, "a whole number >= 0");
  if (key == "values") {
    if (const auto values = reference::values_named(value)) {
      c.values = *values;
      return "";
    }
    std::string names;
    for (const auto& named : reference::kNamedValues) names += (names.empty() ? "" : ", ") + std::string(named.name);
    return wrong("values", value, "one of " + names);
  }
  return wrong("the layout of x", item, "stride=, offset=, values= or seed=");
}

std::string parse_x(std::string_view text, Case& c) {
  const std::string_view shape = text.substr(0, text.find_first_of(":@"));
  const std::size_t by = shape.find('x');
  if (by == std::string_view::npos || !parse_number(shape.substr(0, by), c.rows) ||
      !parse_number(shape.substr(by + 1), c.cols) || c.rows < 0 || c.cols < 1) {
    return wrong("the shape of x", shape, "ROWSxCOLS with rows >= 0 and columns >= 1");
  }
  text.remove_prefix(shape.size());
  const std::string_view name = text.substr(0, text.find('@'));
  if (!name.empty()) {
    const auto type = type_named(name.substr(1));
    if (!type) return wrong("the type of x", name.substr(1), "f32, f16, bf16 or f64");
    c.x = c.out = c.residual = c.residual_out = *type;
    text.remove_prefix(name.size());
  }
  while (!text.empty()) {
    text.remove_prefix(1);
    const std::string_view item = text.substr(0, text.find(','));
    if (std::string error = parse_layout(item, c); !error.empty()) return error;
    text.remove_prefix(item.size());
  }
  if (c.stride != 0 && c.stride < c.cols) return wrong("stride", std::to_string(c.stride), "at least the columns");
  return "";
}

}  // namespace

std::string shortest(double value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end.ptr);
}

std::string_view name_of(Op op) { return kNamedOps[static_cast<int>(op)].name; }

std::optional<Op> op_named(std::string_view name) {
  for (const NamedOp& named : kNamedOps) {
    if (named.name == name) return named.op;
  }
  return std::nullopt;
}

std::optional<rn_type> type_named(std::string_view name) {
  for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
    if (name == rn_type_name(type)) return type;
  }
  return std::nullopt;
}

Case make_case(Op op, rn_type type, std::int64_t rows, std::int64_t cols) {
  Case c;
  c.op = op;
  c.rows = rows;
  c.cols = cols;
  c.x = c.out = c.residual = c.residual_out = type;
  c.epsilon = is_layer(op) ? rn_layer_norm_defaults().epsilon : rn_rms_norm_defaults().epsilon;
  return c;
}

std::string command_line(const Case& c) {
  const Case plain = make_case(c.op, c.x, c.rows, c.cols);
  const auto type = [](rn_type t) { return std::string(rn_type_name(t)); };
  std::string line = "rmsnorm check " + std::string(name_of(c.op)) + " x=" + std::to_string(c.rows) + "x" +
                     std::to_string(c.cols) + ":" + type(c.x);
  std::string layout;
  if (c.stride != 0) layout += ",stride=" + std::to_string(c.stride);
  if (c.offset != 0) layout += ",offset=" + std::to_string(c.offset);
  if (c.values != plain.values) layout += ",values=" + std::string(reference::name_of(c.values));
  if (c.seed != plain.seed) layout += ",seed=" + std::to_string(c.seed);
  if (!layout.empty()) line += "@" + layout.substr(1);
  if (c.weight) line += " w=" + type(*c.weight);
  if (c.bias) line += " b=" + type(*c.bias);
  if (is_add(c.op)) line += " residual=" + type(c.residual) + " residual_out=" + type(c.residual_out);
  line += " out=" + type(c.out);
  if (c.epsilon != plain.epsilon) line += " --epsilon " + shortest(c.epsilon);
  if (c.weight_offset != 0) line += " --weight-offset " + shortest(c.weight_offset);
  if (c.epsilon_placement != plain.epsilon_placement) {
    line += " --epsilon-placement " + std::string(kPlacementNames[c.epsilon_placement]);
  }
  if (c.rounding != plain.rounding) line += " --rounding " + std::string(kRoundingNames[c.rounding]);
  if (c.partial != 0) line += " --partial " + std::to_string(c.partial);
  if (c.norm_input != plain.norm_input) line += " --norm-input " + std::string(kNormInputNames[c.norm_input]);
  if (!c.target.empty()) line += " --target " + c.target;
  if (c.threads != plain.threads) line += " --threads " + std::to_string(c.threads);
  if (c.in_place) line += " --in-place";
  return line;
}

std::string parse_operand(std::string_view text, Case& c) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : text.substr(equals + 1);
  if (name == "x") return parse_x(value, c);
  const auto type = type_named(value);
  if (!type) return wrong("the type of " + std::string(name), value, "f32, f16, bf16 or f64");
  if (name == "w") {
    c.weight = type;
  } else if (name == "b") {
    c.bias = type;
  } else if (name == "residual") {
    c.residual = *type;
  } else if (name == "residual_out") {
    c.residual_out = *type;
  } else if (name == "out") {
    c.out = *type;
  } else {
    return wrong("operand", text, "x=, w=, b=, residual=, residual_out= or out=");
  }
  return "";
}

}  // namespace rmsnorm::check
