// oneDNN's layer normalisation for onednn_peer.py: primitives prepared once, memory of the caller, weights in f32.
#include <cstdint>
#include <cstdio>
#include <dnnl.hpp>
#include <unordered_map>

namespace {

using dnnl::memory;
using Flags = dnnl::normalization_flags;

struct Norm {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
};

memory::data_type type_of(int type) {
  return type == 0 ? memory::data_type::f32 : type == 1 ? memory::data_type::f16 : memory::data_type::bf16;
}

}  // namespace

// type: 0 f32, 1 f16, 2 bf16. bias null: RMSNorm, else LayerNorm. Returns null where oneDNN has no such primitive.
extern "C" void* onednn_norm(int type, std::int64_t rows, std::int64_t cols, void* x, void* weight, void* bias,
                             void* out, float epsilon) {
  try {
    auto* norm = new Norm;
    const memory::desc data({rows, cols}, type_of(type), memory::format_tag::ab);
    const memory::desc parameter({cols}, memory::data_type::f32, memory::format_tag::a);
    const Flags flags = Flags::use_scale | (bias != nullptr ? Flags::use_shift : Flags::rms_norm);
    const dnnl::layer_normalization_forward::primitive_desc description(
        norm->engine, dnnl::prop_kind::forward_inference, data, data, epsilon, flags);
    norm->primitive = dnnl::layer_normalization_forward(description);
    norm->arguments = {{DNNL_ARG_SRC, memory(data, norm->engine, x)},
                       {DNNL_ARG_DST, memory(data, norm->engine, out)},
                       {DNNL_ARG_SCALE, memory(parameter, norm->engine, weight)}};
    if (bias != nullptr) norm->arguments.insert({DNNL_ARG_SHIFT, memory(parameter, norm->engine, bias)});
    return norm;
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

extern "C" void onednn_run(void* norm) {
  auto* n = static_cast<Norm*>(norm);
  n->primitive.execute(n->stream, n->arguments);
  n->stream.wait();
}

extern "C" const char* onednn_version() {
  static char text[32];
  const dnnl_version_t* v = dnnl_version();
  std::snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
  return text;
}
