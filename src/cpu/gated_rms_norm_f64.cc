// Gated RMSNorm of f64 rows and its backward: portable, every number a pair with an exponent of its own. Sums of products
// may cancel until nothing is left of the digits of one f64, silu(gate)'s included.
#include "core/backward_call.h"
#include "cpu/gated_rms_norm.h"
#include "cpu/scaled.h"

namespace rmsnorm {

namespace {

// e^-v for v >= 0: 2^-k e^-r and e^-r = (e^(-r / 8))^8, that by its series.
Scaled inverse_power_of_e(double v) {
  constexpr double kVanishing = 11000;  // e^-v is below 2^-15800 then, which no product with two f64 brings back
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  // ln 2; the first two with room for a product with k.
  constexpr double kHigh = 0x1.62e42fefa4p-1, kMiddle = -0x1.8432a1b0ep-43, kLow = -0x1.319ff03425430p-82;
  constexpr int kTerms = 16, kPlainTerms = 9;  // from kPlainTerms on one f64 serves
  if (v > kVanishing) return 0;
  const int k = static_cast<int>(v * kLog2E + 0.5);
  const Twofold r = Twofold{v - k * kHigh} - Twofold{k * kMiddle} - Twofold{k * kLow};
  const Twofold small = r * 0.125;
  double tail = 1;
  for (int n = kTerms; n >= kPlainTerms; --n) tail = 1 - small.value * tail / n;
  Twofold sum = {tail};
  for (int n = kPlainTerms - 1; n > 0; --n) sum = Twofold{1} - small * sum / Twofold{static_cast<double>(n)};
  for (int square = 0; square < 3; ++square) sum = sum * sum;
  return {sum, -k};
}

struct Activation {
  Scaled silu, slope;
};

Activation activate(double g) {
  if (std::isnan(g)) return {g, g};
  if (g == HUGE_VAL) return {g, 1};
  if (g == -HUGE_VAL) return {-0.0, 0};
  const Scaled e = inverse_power_of_e(std::fabs(g)), total = Scaled(1) + e;
  const Scaled of_magnitude = Scaled(1) / total, of_opposite = e / total;
  const Scaled& sigmoid = g < 0 ? of_opposite : of_magnitude;
  const Scaled silu = Scaled(g) * sigmoid;
  return {silu, sigmoid + silu * (g < 0 ? of_magnitude : of_opposite)};
}

// One group of a row.
class F64Group {
 public:
  F64Group(const GatedShape& call, const char* x, const char* gate, const Operand& gate_operand, const char* weight,
           const Operand& weight_operand)
      : call_(call),
        x_(x),
        gate_(gate),
        weight_(weight),
        gate_type_(gate_operand.type),
        weight_type_(weight_operand.type) {}

  Activation activation(int64_t i) const { return activate(read(gate_, gate_type_, i)); }
  Scaled x(int64_t i) const { return read(x_, RN_F64, i); }
  Scaled weighted(const Scaled& v, int64_t i) const {
    return weight_ == nullptr ? v : v * Scaled(read(weight_, weight_type_, i));
  }
  // What is normalised, before it is.
  Scaled entering(int64_t i, const Activation& a) const { return call_.gate_first ? x(i) * a.silu : x(i); }

  Scaled mean(const Scaled& sum) const { return sum / Scaled(static_cast<double>(call_.width)); }
  Scaled inv() const {
    Scaled squares;
    for (int64_t i = 0; i < call_.width; ++i) {
      const Scaled v = entering(i, call_.gate_first ? activation(i) : Activation());
      squares = squares + v * v;
    }
    return Scaled(1) / square_root(mean(squares) + Scaled(call_.epsilon));
  }

 private:
  const GatedShape& call_;
  const char *x_, *gate_, *weight_;
  rn_type gate_type_, weight_type_;
};

// Where column `at` of a row lies; null where the operand is absent.
char* column(const RowShape& shape, const Operand& operand, int64_t row, int64_t at) {
  char* p = row_address(shape, operand, row);
  return p == nullptr ? nullptr : p + at * static_cast<int64_t>(rn_type_size(operand.type));
}
char* statistic(const GatedShape& shape, const Operand& operand, int64_t row, int64_t group) {
  char* p = row_address(shape, operand, row);
  return p == nullptr ? nullptr : p + group * shape.inv_step;
}

F64Group group_of(const GatedShape& shape, const Operand& x, const Operand& gate, const Operand& weight, int64_t row,
                  int64_t at) {
  return {shape, column(shape, x, row, at), column(shape, gate, row, at), gate, column(shape, weight, row, at), weight};
}

void f64_group(const GatedCall& call, int64_t row, int64_t group) {
  const int64_t at = group * call.width;
  const F64Group v = group_of(call, call.x, call.gate, call.weight, row, at);
  char* out = column(call, call.out, row, at);
  const Scaled inv = v.inv();
  if (char* saved = statistic(call, call.inv, row, group)) write(saved, RN_F64, 0, inv.rounded());
  for (int64_t i = 0; i < call.width; ++i) {
    const Activation a = v.activation(i);
    const Scaled y = v.weighted(v.entering(i, a) * inv, i);
    write(out, call.out.type, i, (call.gate_first ? y : y * a.silu).rounded());
  }
}

void f64_gradient(const GatedBackwardCall& call, int64_t row, int64_t group, double* dweight) {
  const int64_t at = group * call.width;
  const F64Group v = group_of(call, call.x, call.gate, call.weight, row, at);
  const char* dys = column(call, call.dy, row, at);
  char* dx = column(call, call.dx, row, at);
  char* dgate = column(call, call.dgate, row, at);
  const char* saved = statistic(call, call.inv, row, group);
  const Scaled inv = saved != nullptr ? Scaled(read(saved, RN_F64, 0)) : v.inv();
  // The gradient that arrives at the norm.
  const auto arriving = [&](int64_t i, const Activation& a) {
    const Scaled g = v.weighted(read(dys, call.dy.type, i), i);
    return call.gate_first ? g : g * a.silu;
  };
  Scaled products;
  for (int64_t i = 0; i < call.width; ++i) {
    const Activation a = v.activation(i);
    products = products + arriving(i, a) * (v.entering(i, a) * inv);
  }
  const Scaled mean = v.mean(products);
  for (int64_t i = 0; i < call.width; ++i) {
    const Activation a = v.activation(i);
    const Scaled dy = read(dys, call.dy.type, i), normalised = v.entering(i, a) * inv;
    const Scaled gradient = arriving(i, a) * inv - normalised * mean * inv;
    const Scaled gate_gradient = (call.gate_first ? gradient * v.x(i) : v.weighted(dy, i) * normalised) * a.slope;
    if (dweight != nullptr) dweight[at + i] += ((call.gate_first ? dy : dy * a.silu) * normalised).rounded();
    if (dx != nullptr) write(dx, call.dx.type, i, (call.gate_first ? gradient * a.silu : gradient).rounded());
    if (dgate != nullptr) write(dgate, call.dgate.type, i, gate_gradient.rounded());
  }
}

}  // namespace

void f64_gated_rows(const GatedCall& call, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < call.groups; ++group) f64_group(call, row, group);
  }
}

void f64_gated_backward_rows(const GatedBackwardCall& call, int64_t begin, int64_t end, double* dweight) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t group = 0; group < call.groups; ++group) f64_gradient(call, row, group, dweight);
  }
}

}  // namespace rmsnorm
