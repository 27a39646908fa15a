// qk_norm_rope.
#include "operations.h"
#include "options.h"

namespace rmsnorm::python {
namespace {

auto rope_layout() { return nb::arg("rope_layout") = spelled(QkNormRopeOptions().rope_layout); }

constexpr const char* kQkNormRope = R"(RMSNorm of each head of Q and of K, then rotary position embedding, in one pass.

For each token and head, y = rms_norm(head, weight); then columns a and b of a pair are turned by the token's position:

    a' = a * cos - b * sin,  b' = b * cos + a * sin

q          [.., heads, head_dim]  float32, float16, bfloat16 or float64; the axes before the heads are tokens
k          [.., k_heads, head_dim]  type of q, the same tokens; None: there is none
q_weight, k_weight  [head_dim], or broadcasting against q and k: a weight for each head; None: factor 1
cos_sin    [positions, rotary_dim]  float32: rotary_dim / 2 cosines, then as many sines, for each position; rotary_dim
           is even and at most head_dim: columns behind it are not turned; None: no rotary embedding
positions  [..] of each token, int32 or int64, a row of cos_sin; None: the index on the axis before the heads
rope_layout  'half_split': columns i and i + rotary_dim / 2 are turned together; 'interleaved': 2i and 2i + 1
rounding   'once'; 'before_weight': y is rounded to the type of q, as separate layers do
q_out, k_out  as q and k; may be q and k: a slice of a packed QKV array in place; None: made
The other arguments are those of rms_norm. A position that cos_sin does not have is found before anything is written.

Returns q_out, or (q_out, k_out) where there is a k. Raises ValueError and TypeError.)";

Result py_qk_norm_rope(Array q, OptionalArray k, OptionalArray q_weight, OptionalArray k_weight, OptionalArray cos_sin,
                       OptionalArray positions, double epsilon, double weight_offset,
                       Choice<EpsilonPlacement> epsilon_placement, Choice<Rounding> rounding, std::int64_t partial,
                       Choice<RopeLayout> rope_layout, int threads, Output q_out, Output k_out) {
  Call call("qk_norm_rope", threads);
  const View qv = call.input("q", q);
  const View kv = call.input("k", k);
  const View qwv = call.input("q_weight", q_weight);
  const View kwv = call.input("k_weight", k_weight);
  const View csv = call.input("cos_sin", cos_sin);
  const View pv = call.input("positions", positions);
  const View qov = call.output("q_out", q_out, qv.get()->type, shape_of(qv));
  View kov;
  if (kv.get() != nullptr) kov = call.output("k_out", k_out, kv.get()->type, shape_of(kv));
  const QkNormRopeOptions options = {rms_options(call, epsilon, weight_offset, epsilon_placement, rounding, partial),
                                     call.choice(rope_layout)};
  return call.run([&] { qk_norm_rope(qov, kov, qv, kv, qwv, kwv, csv, pv, options, call.execution()); });
}

}  // namespace

void add_qk_norm_rope(nb::module_& module) {
  module.def("qk_norm_rope", py_qk_norm_rope, kQkNormRope, nb::arg("q"), optional("k"), optional("q_weight"),
             optional("k_weight"), optional("cos_sin"), optional("positions"), nb::kw_only(), rms_epsilon(),
             weight_offset(), epsilon_placement(), rounding(), partial(), rope_layout(), threads(), optional("q_out"),
             optional("k_out"));
}

}  // namespace rmsnorm::python
