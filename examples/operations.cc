// Every operation once, from C++. The pages in docs/ quote these pieces.
#include <cstdio>
#include <vector>

#include "rmsnorm/rmsnorm.hpp"

namespace {

constexpr int kRows = 2;
constexpr int kCols = 4;
const std::vector<float> x = {1, 2, 3, 4, -1, 0, 1, 2};
const std::vector<float> residual = {4, 3, 2, 1, 0, 0, 0, 0};
const std::vector<float> weight = {1, 1, 2, 2};
const std::vector<float> bias = {0, 0, 0, 1};

void print(const char* name, const std::vector<float>& values) {
  std::printf("%s", name);
  for (const float value : values) std::printf(" %.6g", static_cast<double>(value));
  std::printf("\n");
}

void rms_norm() {
  // [rms_norm]
  std::vector<float> out(x.size());
  rmsnorm::rms_norm(rmsnorm::matrix(out.data(), kRows, kCols), {}, rmsnorm::matrix(x.data(), kRows, kCols),
                    rmsnorm::vector(weight.data(), kCols), {}, {.epsilon = 1e-5});
  // [end]
  print("rms_norm", out);
}

void backward() {
  // [backward]
  std::vector<float> dx(x.size()), dweight(kCols);
  const std::vector<float> dy = {1, 0, 0, -1, 0, 1, 1, 0};
  rmsnorm::rms_norm_backward(rmsnorm::matrix(dx.data(), kRows, kCols), rmsnorm::vector(dweight.data(), kCols), {},
                             rmsnorm::matrix(dy.data(), kRows, kCols), rmsnorm::matrix(x.data(), kRows, kCols),
                             rmsnorm::vector(weight.data(), kCols));
  // [end]
  print("dx", dx);
  print("dweight", dweight);
}

void gated_rms_norm() {
  // [gated_rms_norm]
  std::vector<float> out(x.size());
  rmsnorm::gated_rms_norm(rmsnorm::matrix(out.data(), kRows, kCols), {}, rmsnorm::matrix(x.data(), kRows, kCols),
                          rmsnorm::matrix(residual.data(), kRows, kCols), rmsnorm::vector(weight.data(), kCols),
                          {.epsilon = 1e-5, .gate_order = rmsnorm::GateOrder::kFirst, .groups = 2});
  // [end]
  print("gated_rms_norm", out);
}

void layer_norm() {
  // [layer_norm]
  std::vector<float> out(x.size()), mean(kRows), inv_std(kRows);
  rmsnorm::layer_norm(rmsnorm::matrix(out.data(), kRows, kCols), rmsnorm::vector(mean.data(), kRows),
                      rmsnorm::vector(inv_std.data(), kRows), rmsnorm::matrix(x.data(), kRows, kCols),
                      rmsnorm::vector(weight.data(), kCols), rmsnorm::vector(bias.data(), kCols));
  // [end]
  print("layer_norm", out);
  print("mean", mean);
  print("inv_std", inv_std);
}

void add_rms_norm() {
  // [add_rms_norm]
  std::vector<float> out(x.size()), sum(x.size());
  rmsnorm::add_rms_norm(rmsnorm::matrix(out.data(), kRows, kCols), rmsnorm::matrix(sum.data(), kRows, kCols), {},
                        rmsnorm::matrix(x.data(), kRows, kCols), rmsnorm::matrix(residual.data(), kRows, kCols),
                        rmsnorm::vector(weight.data(), kCols));
  // [end]
  print("add_rms_norm", out);
  print("sum", sum);
}

void add_layer_norm() {
  // [add_layer_norm]
  std::vector<float> out = x, stream = residual;  // both are overwritten: in place
  const auto out_view = rmsnorm::matrix(out.data(), kRows, kCols);
  const auto stream_view = rmsnorm::matrix(stream.data(), kRows, kCols);
  rmsnorm::add_layer_norm(out_view, stream_view, {}, {}, out_view, stream_view, rmsnorm::vector(weight.data(), kCols));
  // [end]
  print("add_layer_norm", out);
  print("stream", stream);
}

void center() {
  // [center]
  std::vector<float> out(x.size());
  rmsnorm::center(rmsnorm::matrix(out.data(), kRows, kCols), rmsnorm::matrix(x.data(), kRows, kCols));
  // [end]
  print("center", out);
}

void channels() {
  // [channels]
  // One image of four channels, two pixels each: over the channels of a pixel, then over pairs of channels.
  std::vector<float> out(x.size()), grouped(x.size());
  const rmsnorm::View image(x.data(), {1, 4, 1, 2}), w = rmsnorm::vector(weight.data(), 4);
  rmsnorm::rms_norm_channels(rmsnorm::View(out.data(), {1, 4, 1, 2}), image, w);
  rmsnorm::group_rms_norm(rmsnorm::View(grouped.data(), {1, 4, 1, 2}), image, 2, w);
  // [end]
  print("rms_norm_channels", out);
  print("group_rms_norm", grouped);
}

void packed_qkv() {
  // [packed_qkv]
  // Two tokens, Q, K and V of three heads side by side; every head of Q is normalised in place with one weight.
  constexpr int kTokens = 2, kHeads = 3, kHeadDim = 4;
  std::vector<float> qkv(kTokens * 3 * kHeads * kHeadDim, 2.0F);
  const rmsnorm::View q(qkv.data(), {kTokens, kHeads, kHeadDim}, {3 * kHeads * kHeadDim, kHeadDim, 1});
  rmsnorm::rms_norm(q, {}, q, rmsnorm::vector(weight.data(), kHeadDim));
  // [end]
  print("packed_qkv", qkv);
}

void errors() {
  // [errors]
  std::vector<float> out(x.size());
  const rmsnorm::Status status = rmsnorm::try_rms_norm(
      rmsnorm::matrix(out.data(), kRows, kCols), {}, rmsnorm::matrix(x.data(), kRows, kCols), {}, {}, {.epsilon = -1});
  if (!status.ok()) std::printf("%s\n", status.message.c_str());
  // [end]
}

}  // namespace

int main() {
  rms_norm();
  backward();
  gated_rms_norm();
  layer_norm();
  add_rms_norm();
  add_layer_norm();
  center();
  channels();
  packed_qkv();
  errors();
}
