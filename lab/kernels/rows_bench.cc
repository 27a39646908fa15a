// Times one target's row kernels, without checks or threads, against copies of the same bytes in the same loop. For
// trying ideas: build it beside a changed kernels.cc and compare (run.sh). People measure with `rmsnorm bench`.
//
//   rows_bench [part of a case's name]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/float16.h"
#include "cpu/target.h"
#include "cpu/thresholds.h"

namespace rmsnorm {

namespace {

constexpr size_t kPoolBytes = size_t{1536} << 20;  // buffers are rotated through this much, beyond any cache share here
constexpr size_t kLargestWarm = 16 << 20;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Case {
  const char* op;
  int64_t rows, cols;
  rn_type type;

  size_t bytes() const { return static_cast<size_t>(rows * cols) * rn_type_size(type); }
  std::string name() const {
    return std::string(op) + " " + std::to_string(rows) + "x" + std::to_string(cols) + " " + rn_type_name(type);
  }
};

void fill(char* to, const Case& c) {
  uint32_t state = 1;
  for (int64_t i = 0; i < c.rows * c.cols; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    if (c.type == RN_F32) {
      reinterpret_cast<float*>(to)[i] = value;
    } else {
      reinterpret_cast<uint16_t*>(to)[i] = c.type == RN_BF16 ? f32_to_bf16(value) : f32_to_f16(value);
    }
  }
}

void run(const Target& target, const Case& c, char* pool) {
  const size_t step =
      (c.bytes() + 4095) / 4096 * 4096 + 4096 + 256;  // no operand starts where another does in its page
  const bool cold = c.bytes() > kLargestWarm;
  const size_t sets = cold ? std::max<size_t>(1, kPoolBytes / (3 * step)) : 1;
  for (size_t k = 0; k < 3 * sets; ++k) fill(pool + k * step, c);
  std::vector<float> weight(static_cast<size_t>(c.cols), 1.0f);
  std::vector<char> narrow(static_cast<size_t>(c.cols) * 4);
  fill(narrow.data(), {c.op, 1, c.cols, c.type});

  const bool add = std::strncmp(c.op, "add", 3) == 0;
  const auto norm = [&](size_t k) {
    char* const x = pool + 3 * k * step;
    const int64_t stride = static_cast<int64_t>(rn_type_size(c.type)) * c.cols;
    const auto operand = [&](char* base, int64_t bytes) { return Operand{base, c.type, {bytes}}; };
    NormCall call = {};
    call.norm = std::strcmp(c.op, "layer_norm") == 0 ? Norm::kLayer : Norm::kRms;
    call.add = add;
    call.leading = 1;
    call.shape[0] = call.rows = c.rows;
    call.cols = call.partial = c.cols;
    call.epsilon = 1e-6;
    call.stream = static_cast<int64_t>(2 * c.bytes()) > kStreamBytes;
    call.x = operand(x, stride);
    call.out = operand(x + step, stride);
    call.weight = operand(narrow.data(), 0);
    if (add) call.residual = call.residual_out = operand(x + 2 * step, stride);
    target.rows(call, 0, c.rows);
  };
  const auto copy = [&](size_t k) {
    char* const x = pool + 3 * k * step;
    std::memcpy(x + step, x, c.bytes());
  };
  const auto stream = [&](size_t k) {
    char* const x = pool + 3 * k * step;
    target.stream_copy(x + step, x, c.bytes());
  };

  const size_t repeats = std::max<size_t>(1, (size_t{32} << 20) / c.bytes());
  size_t k = 0;
  std::vector<double> times[3];
  const auto time = [&](auto& function, std::vector<double>& to) {
    const double start = now();
    for (size_t i = 0; i < repeats; ++i) function(k = (k + 1) % sets);
    to.push_back((now() - start) / static_cast<double>(repeats));
  };
  for (int round = 0; round < 9; ++round) {
    time(norm, times[0]);
    time(copy, times[1]);
    time(stream, times[2]);
  }
  const double ours = median(times[0]);
  const double limit = std::min(median(times[1]), median(times[2])) * (add ? 2 : 1);
  std::printf("%-32s %s %10.2f us   memcpy %10.2f   stream %10.2f   ratio %.2f\n", c.name().c_str(),
              cold ? "cold" : "warm", ours * 1e6, median(times[1]) * 1e6, median(times[2]) * 1e6, limit / ours);
}

}  // namespace

}  // namespace rmsnorm

int main(int argc, char** argv) {
  using namespace rmsnorm;
  const Target* target = active_target();
  char* const pool = static_cast<char*>(std::aligned_alloc(4096, kPoolBytes + (size_t{1} << 30)));
  if (target == nullptr || pool == nullptr) return 1;
  const int64_t shapes[][2] = {{65536, 1024}, {32768, 2048}, {4096, 4096}, {16384, 1152},
                               {262144, 128}, {512, 1024},   {512, 4096},  {1, 4096}};
  for (const char* op : {"rms_norm", "layer_norm", "add_rms_norm"}) {
    for (const auto& shape : shapes) {
      for (const rn_type type : {RN_F32, RN_BF16, RN_F16}) {
        const Case c = {op, shape[0], shape[1], type};
        if (argc > 1 && c.name().find(argv[1]) == std::string::npos) continue;
        run(*target, c, pool);
      }
    }
  }
  std::free(pool);
}
