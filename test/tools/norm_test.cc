// rmsnorm norm: what it computes, from and to both formats.
#include <cmath>
#include <cstring>

#include "cli.h"
#include "tools/formats/location.h"
#include "tools/formats/npy.h"

namespace rmsnorm::tools {
namespace {

class NormCommand : public Cli {
 protected:
  void norm(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "norm");
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.out, "");
  }

  static std::vector<float> ramp(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 8;
    return values;
  }

  static void expect_near(const std::vector<float>& found, const std::vector<double>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 5e-7 * (1 + std::abs(wanted[i])));
  }
};

TEST_F(NormCommand, rms_norm_of_known_numbers) {
  write_npy("x.npy", {1, 10}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  norm({"rms_norm", "x.npy", "--epsilon", "0", "-o", "y.npy"});
  EXPECT_NEAR(read_floats("y.npy")[9], 1.68585, 5e-6);  // BL-36: 3.1334 would be the standard deviation's
  norm({"rms_norm", "x.npy", "--epsilon", "1", "--epsilon-placement", "outside", "-o", "y.npy"});
  EXPECT_NEAR(read_floats("y.npy")[9], 9 / (std::sqrt(28.5) + 1), 1e-6);
  norm({"rms_norm", "x.npy", "--epsilon", "0", "--partial", "2", "-o", "y.npy"});
  EXPECT_NEAR(read_floats("y.npy")[9], 9 / std::sqrt(0.5), 1e-5);
}

TEST_F(NormCommand, layer_norm_with_parameters_and_statistics) {
  write_npy("x.npy", {2, 4}, {40000, 40001, 40002, 40003, 1, 1, 1, 1});
  write_npy("w.npy", {4}, {1, 2, 1, 1});
  write_npy("b.npy", {4}, {0, 0, 0, 5});
  norm({"layer_norm", "x.npy", "--weight", "w.npy", "--bias", "b.npy", "--epsilon", "1e-12", "--stats", "s.npy", "-o",
        "y.npy"});
  expect_near(read_floats("y.npy"), {-1.3416407865, -0.894427191, 0.4472135955, 6.3416407865, 0, 0, 0, 5});
  const Tensor stats = read_tensor({path("s.npy"), ""});
  EXPECT_EQ(stats.shape, (Shape{2, 2}));
  const std::vector<float> values = read_floats("s.npy");
  EXPECT_EQ(values[0], 40001.5f);
  EXPECT_EQ(values[1], 1.0f);
  EXPECT_NEAR(values[2], 0.894427191, 1e-6);
}

TEST_F(NormCommand, residual_add_writes_the_sum) {
  write_npy("x.npy", {2}, {1, 2});
  write_npy("r.npy", {2}, {2, 2});
  norm({"add_rms_norm", "x.npy", "--residual", "r.npy", "--epsilon", "0", "--residual-out", "s.npy", "-o", "y.npy"});
  EXPECT_EQ(read_floats("s.npy"), (std::vector<float>{3, 4}));
  expect_near(read_floats("y.npy"), {3 / std::sqrt(12.5), 4 / std::sqrt(12.5)});
  norm(
      {"add_layer_norm", "x.npy", "--residual", "r.npy", "--epsilon", "0", "--norm-input", "unrounded", "-o", "y.npy"});
  expect_near(read_floats("y.npy"), {-1, 1});
}

TEST_F(NormCommand, center_and_weight_offset) {
  write_npy("x.npy", {1, 2}, {1, 3});
  norm({"center", "x.npy", "-o", "y.npy"});
  EXPECT_EQ(read_floats("y.npy"), (std::vector<float>{-1, 1}));
  write_npy("w.npy", {2}, {0, 1});
  norm({"rms_norm", "x.npy", "--weight", "w.npy", "--weight-offset", "1", "--epsilon", "0", "-o", "y.npy"});
  expect_near(read_floats("y.npy"), {1 / std::sqrt(5.0), 6 / std::sqrt(5.0)});
}

TEST_F(NormCommand, an_axis_normalises_all_axes_from_there_on) {
  const std::vector<float> x = ramp(24);
  write_npy("x.npy", {2, 3, 4}, x);
  write_npy("flat.npy", {2, 12}, x);
  write_npy("w.npy", {3, 4}, ramp(12));
  write_npy("w_flat.npy", {12}, ramp(12));
  for (const char* axis : {"1", "-2"}) {
    norm({"layer_norm", "x.npy", "--axis", axis, "--weight", "w.npy", "--stats", "s.npy", "-o", "y.npy"});
    norm({"layer_norm", "flat.npy", "--weight", "w_flat.npy", "-o", "z.npy"});
    EXPECT_EQ(read_floats("y.npy"), read_floats("z.npy"));
    EXPECT_EQ(read_tensor({path("y.npy"), ""}).shape, (Shape{2, 3, 4}));
    EXPECT_EQ(read_tensor({path("s.npy"), ""}).shape, (Shape{2, 2}));
  }
  norm({"rms_norm", "x.npy", "--axis", "0", "--stats", "s.npy", "-o", "y.npy"});
  EXPECT_EQ(read_tensor({path("s.npy"), ""}).shape, Shape{});
}

TEST_F(NormCommand, a_weight_per_head_broadcasts) {
  const std::vector<float> x = ramp(2 * 3 * 4);
  const std::vector<float> w = ramp(12);
  write_npy("x.npy", {2, 3, 4}, x);
  write_npy("w.npy", {3, 4}, w);
  norm({"rms_norm", "x.npy", "--weight", "w.npy", "-o", "y.npy"});
  const std::vector<float> all = read_floats("y.npy");
  for (std::size_t token = 0; token < 2; ++token) {
    for (std::size_t head = 0; head < 3; ++head) {
      const std::size_t at = (token * 3 + head) * 4;
      write_npy("one.npy", {4}, {x.begin() + static_cast<long>(at), x.begin() + static_cast<long>(at + 4)});
      write_npy("own.npy", {4}, {w.begin() + static_cast<long>(head * 4), w.begin() + static_cast<long>(head * 4 + 4)});
      norm({"rms_norm", "one.npy", "--weight", "own.npy", "-o", "z.npy"});
      const std::vector<float> one = read_floats("z.npy");
      EXPECT_EQ(std::vector<float>(all.begin() + static_cast<long>(at), all.begin() + static_cast<long>(at + 4)), one);
    }
  }
  write_npy("per_token.npy", {2, 1, 4}, ramp(8));
  norm({"rms_norm", "x.npy", "--weight", "per_token.npy", "-o", "y.npy"});
  run({"norm", "rms_norm", "x.npy", "--weight", "w.npy", "-o", "y.npy"});
  expect_failure({"norm", "rms_norm", "x.npy", "--weight", "one.npy", "--bias", "y.npy", "--axis", "1", "-o", "q.npy"},
                 3, "weight: shape is [4]; it must be [12] or broadcast");
}

TEST_F(NormCommand, bf16_as_numpy_writes_it) {
  // V2 elements 1, 2, 3, 4 in; the rounding of Llama out.
  std::string bytes = npy_header(RN_BF16, {1, 4});
  bytes += std::string("\x80\x3f\x00\x40\x40\x40\x80\x40", 8);
  write_bytes("x.npy", bytes);
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.npy"}, 3, "--type bf16");
  norm({"rms_norm", "x.npy", "--type", "bf16", "--rounding", "before_weight", "-o", "y.npy"});
  const Tensor y = read_tensor({path("y.npy"), ""}, RN_BF16);
  EXPECT_EQ(y.type, RN_BF16);
  norm({"rms_norm", "x.npy", "--type", "bf16", "--out-type", "f32", "--epsilon", "0", "-o", "f.npy"});
  const double rms = std::sqrt(7.5);
  expect_near(read_floats("f.npy"), {1 / rms, 2 / rms, 3 / rms, 4 / rms});
  write_npy("f32.npy", {1, 4}, {1, 2, 3, 4});
  expect_failure({"norm", "rms_norm", "f32.npy", "--type", "bf16", "-o", "y.npy"}, 2,
                 "must be the type of f32.npy, f32");
  norm({"rms_norm", "f32.npy", "--out-type", "bf16", "-o", "g.npy"});
  norm({"rms_norm", "f32.npy", "--type", "bf16", "--weight", "x.npy", "-o", "h.npy"});
}

TEST_F(NormCommand, safetensors_in_and_out) {
  write_npy("x.npy", {2, 4}, ramp(8));
  norm({"rms_norm", "x.npy", "-o", "m.safetensors:a"});
  norm({"rms_norm", "m.safetensors:a", "-o", "other.safetensors:layer:0", "--stats", "other.safetensors:stats"});
  norm({"rms_norm", "m.safetensors:a", "-o", "y.npy"});
  EXPECT_EQ(read_floats("other.safetensors:layer:0"), read_floats("y.npy"));
  EXPECT_EQ(read_tensor({path("other.safetensors"), "stats"}).shape, Shape{2});
  // An existing file gains a tensor and keeps the others.
  norm({"center", "x.npy", "-o", "other.safetensors:c"});
  EXPECT_EQ(read_floats("other.safetensors:layer:0"), read_floats("y.npy"));
  expect_failure({"norm", "rms_norm", "m.safetensors", "-o", "y.npy"}, 2, "'a' F32 [2, 4]");
  expect_failure({"norm", "rms_norm", "m.safetensors:b", "-o", "y.npy"}, 3, "tensor is 'b'; it must be one of 'a'");
}

TEST_F(NormCommand, in_place_equals_out_of_place) {
  write_npy("x.npy", {3, 70}, ramp(210));
  write_npy("r.npy", {3, 70}, ramp(210));
  const std::string residual = read_bytes("r.npy");
  norm({"add_rms_norm", "x.npy", "--residual", "r.npy", "--residual-out", "s.npy", "-o", "y.npy"});
  norm({"add_rms_norm", "x.npy", "--residual", "r.npy", "--in-place"});
  EXPECT_EQ(read_bytes("x.npy"), read_bytes("y.npy"));
  EXPECT_EQ(read_bytes("r.npy"), residual);  // not asked for
  write_npy("x.npy", {3, 70}, ramp(210));
  norm({"add_rms_norm", "x.npy", "--residual", "r.npy", "--residual-out", "r.npy", "--in-place"});
  EXPECT_EQ(read_bytes("x.npy"), read_bytes("y.npy"));
  EXPECT_EQ(read_bytes("r.npy"), read_bytes("s.npy"));

  norm({"center", "y.npy", "-o", "m.safetensors:x"});
  norm({"center", "r.npy", "-o", "m.safetensors:kept"});
  const std::vector<float> kept = read_floats("m.safetensors:kept");
  norm({"rms_norm", "m.safetensors:x", "-o", "z.npy"});
  norm({"rms_norm", "m.safetensors:x", "--in-place"});
  EXPECT_EQ(read_floats("m.safetensors:x"), read_floats("z.npy"));
  EXPECT_EQ(read_floats("m.safetensors:kept"), kept);
}

// More rows than the library is given at once, so that a progress line could move; at no terminal nothing is written.
TEST_F(NormCommand, long_work_is_silent_and_equals_its_parts) {
  constexpr std::size_t kParts = 3, kRows = 3500, kCols = 1024;
  const std::vector<float> x = ramp(kParts * kRows * kCols);
  const std::vector<float> w = ramp(kParts * kCols);
  write_npy("x.npy", {kParts, kRows, kCols}, x);
  write_npy("w.npy", {kParts, 1, kCols}, w);
  norm({"layer_norm", "x.npy", "--weight", "w.npy", "--stats", "s.npy", "-o", "y.npy"});
  const std::vector<float> y = read_floats("y.npy"), s = read_floats("s.npy");
  ASSERT_EQ(y.size(), x.size());
  ASSERT_EQ(s.size(), 2 * kParts * kRows);
  const auto part = [](const std::vector<float>& all, std::size_t index, std::size_t size) {
    const auto begin = all.begin() + static_cast<long>(index * size);
    return std::vector<float>(begin, begin + static_cast<long>(size));
  };
  for (std::size_t i = 0; i < kParts; ++i) {
    write_npy("part.npy", {kRows, kCols}, part(x, i, kRows * kCols));
    write_npy("own.npy", {kCols}, part(w, i, kCols));
    norm({"layer_norm", "part.npy", "--weight", "own.npy", "--stats", "t.npy", "-o", "z.npy"});
    EXPECT_TRUE(read_floats("z.npy") == part(y, i, kRows * kCols)) << i;
    const std::vector<float> t = read_floats("t.npy");
    EXPECT_TRUE(part(t, 0, kRows) == part(s, i, kRows)) << i;
    EXPECT_TRUE(part(t, 1, kRows) == part(s, kParts + i, kRows)) << i;
  }
  norm({"layer_norm", "x.npy", "--weight", "w.npy", "--in-place"});
  EXPECT_TRUE(read_floats("x.npy") == y);
}

TEST_F(NormCommand, many_axes_zero_rows_and_threads) {
  write_npy("x.npy", Shape{1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 3}, ramp(6));
  norm({"rms_norm", "x.npy", "-o", "y.npy"});
  write_npy("none.npy", {0, 5}, {});
  norm({"layer_norm", "none.npy", "--stats", "s.npy", "-o", "y.npy"});
  EXPECT_EQ(read_tensor({path("y.npy"), ""}).shape, (Shape{0, 5}));
  expect_failure({"norm", "rms_norm", "none.npy", "--epsilon", "-1", "-o", "z.npy"}, 3, "epsilon is -1");
  write_npy("big.npy", {600, 1000}, ramp(600000));
  norm({"rms_norm", "big.npy", "--threads", "1", "--target", "scalar", "-o", "one.npy"});
  norm({"rms_norm", "big.npy", "--threads", "4", "-o", "four.npy"});
  EXPECT_EQ(read_bytes("one.npy"), read_bytes("four.npy"));
}

}  // namespace
}  // namespace rmsnorm::tools
