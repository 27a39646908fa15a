// The norms of a decoder with the layers left out: a residual stream in f32, activations in bf16, each addition fused
// with the norm behind it, all in place. What the matrices would do is a stand-in that shifts columns.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "rmsnorm/rmsnorm.hpp"

namespace {

constexpr int kTokens = 2, kWidth = 8, kLayers = 3;

float to_float(rmsnorm::bf16 value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// In place of attention or the feed-forward network.
void block(std::vector<rmsnorm::bf16>& rows) {
  for (int token = 0; token < kTokens; ++token) {
    rmsnorm::bf16* row = &rows[static_cast<std::size_t>(token) * kWidth];
    const rmsnorm::bf16 first = row[0];
    for (int i = 0; i + 1 < kWidth; ++i) row[i] = row[i + 1];
    row[kWidth - 1] = first;
  }
}

}  // namespace

int main() {
  std::vector<float> stream(kTokens * kWidth), weight(kWidth, 1.0F);
  for (std::size_t i = 0; i < stream.size(); ++i) stream[i] = static_cast<float>(i % 5) - 1.5F;
  std::vector<rmsnorm::bf16> rows(stream.size());

  const auto stream_view = rmsnorm::matrix(stream.data(), kTokens, kWidth);
  const auto rows_view = rmsnorm::matrix(rows.data(), kTokens, kWidth);
  const auto weight_view = rmsnorm::vector(weight.data(), kWidth);

  rmsnorm::rms_norm(rows_view, {}, stream_view, weight_view);
  for (int layer = 0; layer < kLayers; ++layer) {
    block(rows);
    // stream += rows, then rows = rms_norm(stream); both are read and overwritten.
    rmsnorm::add_rms_norm(rows_view, stream_view, {}, rows_view, stream_view, weight_view);
    std::printf("layer %d stream %.4f %.4f.. rows %.4f %.4f..\n", layer, static_cast<double>(stream[0]),
                static_cast<double>(stream[1]), static_cast<double>(to_float(rows[0])),
                static_cast<double>(to_float(rows[1])));
  }
}
