// Gradients and fused forms against PyTorch's autograd: numbers that no formula of ours has made
// (data/autograd/make_vectors.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <sstream>

#include "check/operation.h"
#include "tools/formats/safetensors.h"

namespace rmsnorm::check {
namespace {

using Vectors = std::map<std::string, tools::Tensor, std::less<>>;  // by operand

// PyTorch adds up to 2100 numbers of order 1 in f64, in an order of its own.
constexpr double kTolerance = 1e-13;

class Autograd : public testing::Test {
 protected:
  tools::FileSource file_{RMSNORM_TEST_AUTOGRAD};
  tools::SafetensorsHeader header_ = tools::read_safetensors_header(file_);

  Vectors vectors_of(const std::string& name) const {
    Vectors vectors;
    for (const auto& entry : header_.entries) {
      if (!entry.name.starts_with(name + "/")) continue;
      vectors.emplace(entry.name.substr(name.size() + 1), tools::read_safetensors(file_, header_, entry.name));
    }
    return vectors;
  }
};

// "rms_norm_backward epsilon=0.5"
const Operation* understand(const std::string& text, Request& r) {
  std::istringstream words(text);
  std::string name;
  words >> name;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    r.settings[word.substr(0, equals)] = std::stod(word.substr(equals + 1));
  }
  return operation_named(name);
}

void compare(const Tensor& found, const tools::Tensor& expected, const std::string& what) {
  std::vector<double> values(expected.data.size() / sizeof(double)), row(static_cast<std::size_t>(found.cols()));
  std::memcpy(values.data(), expected.data.data(), expected.data.size());
  ASSERT_EQ(static_cast<std::size_t>(found.rows() * found.cols()), values.size()) << what;
  double largest = 0;
  for (const double v : values) largest = std::max(largest, std::fabs(v));
  for (std::int64_t r = 0; r < found.rows(); ++r) {
    found.matrix.read_row(r, row.data());
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double wanted = values[static_cast<std::size_t>(r) * row.size() + c];
      ASSERT_NEAR(row[c], wanted, kTolerance * largest) << what << ", row " << r << ", column " << c;
    }
  }
}

TEST_F(Autograd, gives_the_same_numbers) {
  ASSERT_TRUE(header_.metadata);
  std::size_t cases = 0, outputs = 0;
  for (const auto& [name, text] : *header_.metadata) {
    if (name == "torch") continue;
    SCOPED_TRACE(name + ": " + text);
    Request r;
    const Operation* op = understand(text, r);
    ASSERT_NE(op, nullptr);
    const Vectors vectors = vectors_of(name);
    r.x = RN_F64;
    r.shape = vectors.at(std::string(op->x_name())).shape;
    for (const auto& [operand, shown] : op->optional()) r.present[std::string(operand)] = vectors.contains(operand);
    for (const auto& [operand, tensor] : vectors) {
      if (tensor.type != RN_F64) r.types[operand] = tensor.type;
    }
    Tensors tensors = make_tensors(*op, r);
    for (Tensor& t : tensors.all) {
      if (t.slot.role != Role::kInput) continue;
      const tools::Tensor& given = vectors.at(std::string(t.slot.name));
      ASSERT_EQ(t.slot.shape, given.shape) << t.slot.name;
      const std::size_t bytes = static_cast<std::size_t>(t.cols()) * rn_type_size(given.type);
      for (std::int64_t row = 0; row < t.rows(); ++row) {
        std::memcpy(t.matrix.row(row), given.data.data() + static_cast<std::size_t>(row) * bytes, bytes);
      }
    }
    ASSERT_EQ(call(*op, r, tensors), RN_OK) << rn_last_error();
    for (const Tensor& t : tensors.all) {
      if (t.slot.role != Role::kOutput) continue;
      compare(t, vectors.at(std::string(t.slot.name)), std::string(t.slot.name));
      ++outputs;
    }
    ++cases;
  }
  EXPECT_EQ(cases, 27u);
  EXPECT_GE(outputs, 60u);
}

}  // namespace
}  // namespace rmsnorm::check
