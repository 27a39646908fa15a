#include "examples/demo/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/bench/baseline.h"
#include "tools/bench/measure.h"
#include "tools/bench/workload.h"
#include "tools/machine.h"
#include "tools/progress.h"
#include "tools/table.h"

namespace rmsnorm::demo {

using tools::BufferSet;
using tools::Cache;
using tools::Timing;
using tools::Workload;

namespace {

struct ModelShape {
  const char* what;
  std::int64_t rows, cols;
  Cache cache;
};

constexpr ModelShape kModelShapes[] = {
    {"SmolLM2-135M, 64 tokens", 64, 576, Cache::kWarm},
    {"Llama 3 8B, 1 token", 1, 4096, Cache::kWarm},
    {"Llama 3 8B, 32 tokens", 32, 4096, Cache::kWarm},
    {"BERT base, 131,072 tokens", 131072, 768, Cache::kCold},
    {"Llama 3 8B, 16,384 tokens", 16384, 4096, Cache::kCold},
    {"Qwen 3 QK-norm, 2,048 tokens", 65536, 128, Cache::kCold},
};

constexpr tools::MeasureOptions kOptions{7, std::chrono::microseconds{3000}};

std::string microseconds(double ns) { return fmt::format("{:.2f}", ns / 1000); }

}  // namespace

void show_speed() {
  fmt::print("\nSpeed of this machine, one thread, microseconds per call: {}, target {}.\n", tools::this_machine().cpu,
             rn_target());
  fmt::print(
      "copy: the better of memcpy and streaming stores on the same buffers. C loop: RMSNorm as one first writes it, "
      "-O3.\n"
      "cache: the same buffers again; memory: buffers in rotation, more than the last-level cache. All in turns.\n\n");
  const tools::Table table({{"shape", 29, true},
                            {"rows x cols", 11},
                            {"type", 4, true},
                            {"from", 6, true},
                            {"copy", 9},
                            {"RMSNorm", 9},
                            {"LayerNorm", 9},
                            {"C loop", 9},
                            {"GB/s", 6},
                            {"copy/RMSNorm", 12},
                            {"LayerNorm/RMSNorm", 17}});
  table.print_header();
  tools::WorkloadMemory memory;
  tools::Progress progress("measuring", 2 * std::size(kModelShapes));
  for (const ModelShape& shape : kModelShapes) {
    for (const rn_type type : {RN_F32, RN_BF16}) {
      Workload rms;
      rms.type = rms.weight_type = rms.out_type = type;
      rms.rows = shape.rows;
      rms.cols = shape.cols;
      rms.cache = shape.cache;
      Workload layer = rms;
      layer.op = check::Op::kLayerNorm;
      memory.prepare(rms);
      std::vector<tools::Contender> contenders = {
          [&](std::size_t i) { call_workload(rms, memory.sets()[i], memory.weight(), memory.bias()); },
          [&](std::size_t i) { call_workload(layer, memory.sets()[i], memory.weight(), memory.bias()); },
          [&](std::size_t i) { copy_workload(rms, memory.sets()[i], false); },
          [&](std::size_t i) { copy_workload(rms, memory.sets()[i], true); },
      };
      if (type == RN_F32) {
        contenders.emplace_back([&](std::size_t i) {
          const BufferSet& set = memory.sets()[i];
          tools::plain_rms_norm(reinterpret_cast<float*>(set.out), reinterpret_cast<const float*>(set.x),
                                reinterpret_cast<const float*>(memory.weight()), rms.rows, rms.cols, 1e-6f);
        });
      }
      const tools::Pinned pinned;
      const std::vector<Timing> timings = measure(contenders, memory.sets().size(), kOptions);
      const double copy = std::min(timings[2].ns, timings[3].ns);
      progress.clear();
      table.print_row(
          {shape.what, fmt::format("{}x{}", shape.rows, shape.cols), rn_type_name(type),
           shape.cache == Cache::kWarm ? "cache" : "memory", microseconds(copy), microseconds(timings[0].ns),
           microseconds(timings[1].ns), type == RN_F32 ? microseconds(timings[4].ns) : "-",
           fmt::format("{:.1f}", static_cast<double>(rms.bytes()) / timings[0].ns),
           fmt::format("{:.2f}", copy / timings[0].ns), fmt::format("{:.2f}", timings[1].ns / timings[0].ns)});
      progress.advance(1);
    }
  }
  fmt::print("\nMore shapes, types and threads: rmsnorm bench --help\n");
}

}  // namespace rmsnorm::demo
