// The ONNX project's own test vectors, through the public interface: every axis and epsilon that they use.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "onnx.pb.h"
#include "reference/budgets.h"
#include "reference/layer_norm.h"
#include "reference/rms_norm.h"
#include "reference/ulp.h"

namespace rmsnorm::test {
namespace {

using reference::Quad;

constexpr int kOnnxFloat = 1;             // TensorProto.DataType.FLOAT
constexpr double kDefaultEpsilon = 1e-5;  // of both operators

// The vectors come from f32 arithmetic of their own, which has an error of its own; this is the largest found, in ulps
// of the largest addend, rounded up. A wrong axis or epsilon is off by thousands.
constexpr double kErrorOfVectors = 16;

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

template <class Message>
Message read(const std::filesystem::path& path) {
  Message message;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(message.ParseFromIstream(&file)) << path;
  return message;
}

Tensor read_tensor(const std::filesystem::path& path) {
  const auto message = read<onnx_proto::TensorProto>(path);
  EXPECT_EQ(message.data_type(), kOnnxFloat) << path;
  Tensor tensor{{message.dims().begin(), message.dims().end()},
                {message.float_data().begin(), message.float_data().end()}};
  if (message.has_raw_data()) {
    tensor.values.resize(message.raw_data().size() / sizeof(float));
    std::memcpy(tensor.values.data(), message.raw_data().data(), message.raw_data().size());
  }
  return tensor;
}

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t begin, std::size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin),
                         shape.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1}, std::multiplies<>());
}

// One vector: the node's operator and attributes, its inputs and outputs.
struct Vector {
  explicit Vector(const std::filesystem::path& folder) {
    const onnx_proto::NodeProto node = read<onnx_proto::ModelProto>(folder / "model.onnx").graph().node(0);
    layer_norm = node.op_type() == "LayerNormalization";
    EXPECT_TRUE(layer_norm || node.op_type() == "RMSNormalization") << node.op_type();
    for (int i = 0; i < node.input_size(); ++i) {
      inputs.push_back(read_tensor(folder / ("input_" + std::to_string(i) + ".pb")));
    }
    for (int i = 0; i < node.output_size(); ++i) {
      outputs.push_back(read_tensor(folder / ("output_" + std::to_string(i) + ".pb")));
    }
    std::int64_t axis = -1;
    for (const onnx_proto::AttributeProto& attribute : node.attribute()) {
      if (attribute.name() == "axis") axis = attribute.i();
      if (attribute.name() == "epsilon") epsilon = static_cast<double>(attribute.f());
    }
    const std::vector<std::int64_t>& shape = inputs[0].shape;
    const std::size_t first =
        static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(shape.size()) : axis);
    rows = product(shape, 0, first);
    cols = product(shape, first, shape.size());
    // The leading axes as they are, the normalised ones as one; at least one leading axis, for the statistics.
    leading.assign(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(first));
    if (leading.empty()) leading.push_back(1);
    EXPECT_EQ(static_cast<std::int64_t>(inputs[1].values.size()), cols) << "the weight has the normalised shape";
  }

  bool layer_norm = false;
  double epsilon = kDefaultEpsilon;
  std::int64_t rows = 0, cols = 0;
  std::vector<std::int64_t> leading;
  std::vector<Tensor> inputs, outputs;
};

std::vector<std::string> vector_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(RMSNORM_TEST_ONNX_DATA)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class OnnxVector : public testing::TestWithParam<std::string> {};

TEST_P(OnnxVector, GivesTheirNumbers) {
  const Vector v(std::filesystem::path(RMSNORM_TEST_ONNX_DATA) / GetParam());
  std::vector<float> x = v.inputs[0].values, weight = v.inputs[1].values, out(x.size());
  std::vector<float> bias = v.inputs.size() > 2 ? v.inputs[2].values : std::vector<float>();
  std::vector<float> mean(static_cast<std::size_t>(v.rows)), inv(mean);

  std::vector<std::int64_t> shape = v.leading;
  const std::int32_t rank = static_cast<std::int32_t>(shape.size());
  const rn_view mean_view = rn_tensor(mean.data(), RN_F32, rank, shape.data());
  const rn_view inv_view = rn_tensor(inv.data(), RN_F32, rank, shape.data());
  shape.push_back(v.cols);
  const rn_view x_view = rn_tensor(x.data(), RN_F32, rank + 1, shape.data());
  const rn_view out_view = rn_tensor(out.data(), RN_F32, rank + 1, shape.data());
  const rn_view w = rn_vector(weight.data(), RN_F32, v.cols), b = rn_vector(bias.data(), RN_F32, v.cols);
  const rn_view* bias_view = bias.empty() ? nullptr : &b;
  rn_rms_norm_options rms = rn_rms_norm_defaults();
  rms.epsilon = v.epsilon;
  const rn_layer_norm_options layer{v.epsilon, 0};
  const rn_status status =
      v.layer_norm ? rn_layer_norm(&out_view, &mean_view, &inv_view, &x_view, &w, bias_view, &layer, nullptr)
                   : rn_rms_norm(&out_view, &inv_view, &x_view, &w, bias_view, &rms, nullptr);
  ASSERT_EQ(status, RN_OK) << rn_last_error();

  const std::vector<double> wide_weight(weight.begin(), weight.end()), wide_bias(bias.begin(), bias.end());
  const reference::Parameters parameters{wide_weight.data(), bias.empty() ? nullptr : wide_bias.data(), 0};
  const double allowed = reference::budget(v.layer_norm ? reference::Judged::kLayerNorm : reference::Judged::kRmsNorm,
                                           RN_F32, RN_F32, !bias.empty(), false, RN_ROUND_ONCE)
                             .ulps;
  const std::size_t cols = static_cast<std::size_t>(v.cols);
  std::vector<Quad> exact(cols);
  double worst_of_vectors = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(v.rows); ++r) {
    const std::vector<double> row(x.begin() + static_cast<std::ptrdiff_t>(r * cols),
                                  x.begin() + static_cast<std::ptrdiff_t>((r + 1) * cols));
    reference::Moments<Quad> moments{};
    if (v.layer_norm) {
      moments = reference::layer_norm(exact.data(), row.data(), v.cols, parameters, v.epsilon);
    } else {
      moments.inv_std = reference::rms_norm(exact.data(), row.data(), v.cols, RN_F32, parameters, rms);
    }
    for (std::size_t i = 0; i < cols; ++i) {
      const Quad addend = bias.empty() ? 0 : static_cast<Quad>(bias[i]);
      const Quad scale = std::max(
          {reference::absolute(exact[i]), reference::absolute(addend), reference::absolute(exact[i] - addend)});
      const double expected = v.outputs[0].values[r * cols + i], found = out[r * cols + i];
      const double error_of_vector = reference::ulp_distance(RN_F32, expected, exact[i], scale);
      EXPECT_LE(error_of_vector, kErrorOfVectors) << "row " << r << ", column " << i << ": " << expected;
      EXPECT_LE(reference::ulp_distance(RN_F32, found, exact[i], scale), allowed) << "row " << r << ", column " << i;
      worst_of_vectors = std::max(worst_of_vectors, error_of_vector);
    }
    EXPECT_LE(reference::ulp_distance(RN_F32, inv[r], moments.inv_std), reference::kStatistic);
    if (v.outputs.size() < 3) continue;
    EXPECT_LE(reference::ulp_distance(RN_F32, v.outputs[2].values[r], moments.inv_std), kErrorOfVectors);
    EXPECT_LE(std::abs(static_cast<double>(mean[r] - v.outputs[1].values[r])), 1e-6) << "mean of row " << r;
  }
  std::printf("the vector's own error: %.2f ulp\n", worst_of_vectors);
}

INSTANTIATE_TEST_SUITE_P(All, OnnxVector, testing::ValuesIn(vector_names()),
                         [](const auto& instance) { return instance.param.substr(std::strlen("test_")); });

TEST(OnnxVectors, AreAllThere) { EXPECT_EQ(vector_names().size(), 19u + 19u); }

}  // namespace
}  // namespace rmsnorm::test
