#include "lab/experiments/cost_times.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "lab/experiments/cost_loops.h"
#include "lab/experiments/eager_l2.h"
#include "lab/models/norm.h"
#include "tools/bench/measure.h"
#include "tools/bench/workload.h"

namespace rmsnorm::lab {

namespace {

using tools::Contender;
using torch::Tensor;

constexpr std::int64_t kCachedElements = 1 << 15;  // 128 KiB in, as much out: in the second cache of most CPUs
constexpr std::int64_t kMemoryElements = 1 << 22;  // 16 MiB in, as much out, and so many sets that no cache holds them

// One contender and where its time goes.
struct Timed {
  std::string regime, norm;
  Contender call;
};

tools::MeasureOptions precision(Scale scale) {
  return {scale == Scale::kSmoke ? 3 : 9, std::chrono::microseconds{scale == Scale::kSmoke ? 1000 : 4000}};
}

std::vector<double> times_of(const std::vector<Timed>& timed, std::size_t sets, const tools::MeasureOptions& options) {
  std::vector<Contender> contenders;
  for (const Timed& t : timed) contenders.push_back(t.call);
  std::vector<double> ns;
  for (const tools::Timing& timing : tools::measure(contenders, sets, options)) ns.push_back(timing.ns);
  return ns;
}

tools::Workload workload(check::Op op, std::int64_t elements, std::int64_t width, tools::Cache cache) {
  tools::Workload w;
  w.op = op;
  w.rows = elements / width;
  w.cols = width;
  w.cache = cache;
  return w;
}

// Both norms of this library on the same buffers.
void add_fused(std::vector<Timed>& timed, const std::string& regime, std::int64_t elements, std::int64_t width,
               tools::Cache cache, tools::WorkloadMemory& memory) {
  memory.prepare(workload(check::Op::kLayerNorm, elements, width, cache));
  for (const auto& [norm, op] : {std::pair("layer_norm", check::Op::kLayerNorm), {"rms_norm", check::Op::kRmsNorm}}) {
    const tools::Workload w = workload(op, elements, width, cache);
    timed.push_back({regime, norm, [w, &memory](std::size_t set) {
                       tools::call_workload(w, memory.sets()[set], memory.weight(), memory.bias());
                     }});
  }
}

Norm make_norm(NormKind kind, NormCode code, std::int64_t width) {
  NormOptions options;
  options.kind = kind;
  options.code = code;
  return Norm(options, width);
}

void add_torch(std::vector<Timed>& timed, const Tensor& x) {
  const std::int64_t width = x.size(-1);
  for (const NormCode code : {NormCode::kEager, NormCode::kNative}) {
    for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
      timed.push_back({name_of(code), name_of(kind),
                       [norm = make_norm(kind, code, width), x](std::size_t) mutable { norm->forward(x); }});
    }
  }
  const Tensor weight = torch::ones({width});
  timed.push_back({"eager", "rms_norm_l2", [x, weight](std::size_t) { eager_rms_norm_l2(x, weight, 1e-5); }});
}

void add_scalar(std::vector<Timed>& timed, const Tensor& x, const Tensor& y) {
  const std::int64_t rows = x.size(0), width = x.size(1);
  const Tensor weight = torch::ones({width}), bias = torch::zeros({width});
  timed.push_back({"scalar", "layer_norm", [=](std::size_t) {
                     scalar_layer_norm(y.data_ptr<float>(), x.data_ptr<float>(), weight.data_ptr<float>(),
                                       bias.data_ptr<float>(), rows, width, 1e-5F);
                   }});
  timed.push_back({"scalar", "rms_norm", [=](std::size_t) {
                     scalar_rms_norm(y.data_ptr<float>(), x.data_ptr<float>(), weight.data_ptr<float>(), rows, width,
                                     1e-5F);
                   }});
}

// A norm's output is the next one's input; all stay, as training keeps them.
Contender chain(const std::function<Tensor(std::size_t, const Tensor&)>& norm, std::int64_t layers, const Tensor& x) {
  auto kept = std::make_shared<std::vector<Tensor>>(static_cast<std::size_t>(layers));
  return [norm, x, kept](std::size_t) {
    Tensor at = x;
    for (std::size_t layer = 0; layer < kept->size(); ++layer) (*kept)[layer] = at = norm(layer, at);
    for (Tensor& tensor : *kept) tensor.reset();
  };
}

nlohmann::json time_layers(Scale scale) {
  const std::int64_t layers = cost_layers(scale);
  const Tensor x = torch::randn({kLayerRows, kLayerWidth});
  std::vector<Timed> timed;
  for (const NormCode code : {NormCode::kEager, NormCode::kNative, NormCode::kFused}) {
    for (const NormKind kind : {NormKind::kLayerNorm, NormKind::kRmsNorm}) {
      std::vector<Norm> norms;
      for (std::int64_t layer = 0; layer < layers; ++layer) norms.push_back(make_norm(kind, code, kLayerWidth));
      timed.push_back({name_of(code), name_of(kind),
                       chain([norms](std::size_t layer, const Tensor& at) mutable { return norms[layer]->forward(at); },
                             layers, x)});
    }
  }
  const Tensor weight = torch::ones({kLayerWidth});
  timed.push_back(
      {"eager", "rms_norm_l2",
       chain([weight](std::size_t, const Tensor& at) { return eager_rms_norm_l2(at, weight, 1e-5); }, layers, x)});
  const std::vector<double> ns = times_of(timed, 1, {scale == Scale::kSmoke ? 1 : 3, std::chrono::microseconds{1}});
  nlohmann::json result;
  for (std::size_t i = 0; i < timed.size(); ++i) result[timed[i].norm + "-" + timed[i].regime] = ns[i] * 1e-6;
  return result;
}

}  // namespace

std::vector<std::int64_t> cost_widths(Scale scale) {
  if (scale == Scale::kSmoke) return {256, 1024};
  return {256, 768, 1024, 2048, 4096, 8192};
}

std::int64_t cost_layers(Scale scale) { return scale == Scale::kSmoke ? 4 : 80; }

nlohmann::json measure_cost(Scale scale) {
  const torch::NoGradGuard no_gradients;
  torch::set_num_threads(1);
  torch::manual_seed(1);
  const tools::Pinned pinned;
  nlohmann::json cells;
  tools::WorkloadMemory cached, streamed;
  for (const std::int64_t width : cost_widths(scale)) {
    const auto keep = [&](const std::vector<Timed>& timed, const std::vector<double>& ns, std::int64_t elements) {
      for (std::size_t i = 0; i < timed.size(); ++i) {
        cells[timed[i].regime][timed[i].norm][std::to_string(width)] = ns[i] / static_cast<double>(elements);
      }
    };
    const std::int64_t rows = kCachedElements / width;
    const Tensor x = torch::randn({rows, width}), y = torch::empty({rows, width});
    std::vector<Timed> in_cache, from_memory;
    add_scalar(in_cache, x, y);
    add_torch(in_cache, x);
    add_fused(in_cache, "in_cache", rows * width, width, tools::Cache::kWarm, cached);
    keep(in_cache, times_of(in_cache, 1, precision(scale)), rows * width);
    const std::int64_t many = kMemoryElements / width * width;
    add_fused(from_memory, "from_memory", many, width, tools::Cache::kCold, streamed);
    keep(from_memory, times_of(from_memory, streamed.sets().size(), precision(scale)), many);
  }
  return {{"cells", cells}, {"layers", time_layers(scale)}};
}

}  // namespace rmsnorm::lab
