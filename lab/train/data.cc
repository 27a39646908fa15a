#include "lab/train/data.h"

#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "reference/values.h"
#include "tools/error.h"
#include "tools/formats/source.h"

namespace rmsnorm::lab {

namespace {

using reference::scatter;

constexpr std::int64_t kHeldOutShare = 10;  // one part in ten of a text
constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist/";

// The number of the draw `index` of `stream`: the same wherever a run is taken up.
std::uint64_t draw(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return scatter(scatter(scatter(seed) ^ stream) ^ index);
}

void require_batch(std::int64_t batch) {
  if (batch < 1) tools::fail(tools::ExitCode::kUsage, "batch is {}; it must be at least 1", batch);
}

class Text : public Data {
 public:
  Text(const std::filesystem::path& file, std::int64_t time) : time_(time) {
    if (time < 1) tools::fail(tools::ExitCode::kUsage, "time is {}; it must be at least 1 token", time);
    const tools::FileSource source(file.string());
    const auto size = static_cast<std::int64_t>(source.size());
    held_out_begin_ = size - size / kHeldOutShare;
    // Both parts need a row and the token behind it.
    if (size / kHeldOutShare <= time) {
      tools::fail_input("{}: the file has {} bytes; it must have at least {}, for rows of {} tokens in its last tenth",
                        file.string(), size, kHeldOutShare * (time + 1), time);
    }
    bytes_ = torch::empty({size}, torch::kUInt8);
    source.read(0, {reinterpret_cast<std::byte*>(bytes_.data_ptr()), static_cast<std::size_t>(size)});
  }

  Batch train(std::uint64_t seed, std::int64_t step, std::int64_t batch) const override {
    require_batch(batch);
    const auto starts = static_cast<std::uint64_t>(held_out_begin_ - time_);
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < batch; ++row) {
      const std::uint64_t random = draw(seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(row));
      rows.push_back(static_cast<std::int64_t>(random % starts));
    }
    return gather(rows);
  }

  Batch held_out(std::int64_t index, std::int64_t batch) const override {
    require_batch(batch);
    std::vector<std::int64_t> rows;
    for (std::int64_t row = index * batch; row < std::min((index + 1) * batch, held_out_rows()); ++row) {
      rows.push_back(held_out_begin_ + row * time_);
    }
    return gather(rows);
  }

  std::int64_t parts(std::int64_t batch) const override {
    require_batch(batch);
    return (held_out_rows() + batch - 1) / batch;
  }

  std::int64_t classes() const override { return 256; }

 private:
  // Rows side by side; the last token of each is only a target.
  std::int64_t held_out_rows() const { return (bytes_.size(0) - held_out_begin_ - 1) / time_; }

  Batch gather(const std::vector<std::int64_t>& rows) const {
    TORCH_CHECK_INDEX(!rows.empty(), "a part beyond the held-out data was asked for");
    std::vector<torch::Tensor> pieces;
    for (const std::int64_t row : rows) pieces.push_back(bytes_.slice(0, row, row + time_ + 1));
    const torch::Tensor tokens = torch::stack(pieces).to(torch::kInt64);
    return {tokens.slice(1, 0, time_).contiguous(), tokens.slice(1, 1).contiguous()};
  }

  std::int64_t time_;
  std::int64_t held_out_begin_ = 0;
  torch::Tensor bytes_;  // [size] u8
};

// A permutation of 0 .. count - 1 that needs no memory: a Feistel network over the next even power of two, walked until
// it lands inside.
std::int64_t permuted(std::int64_t position, std::int64_t count, std::uint64_t seed, std::uint64_t epoch) {
  int half = 1;
  while (std::int64_t{1} << (2 * half) < count) ++half;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  auto value = static_cast<std::uint64_t>(position);
  do {
    std::uint64_t left = value >> half, right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (draw(seed, epoch * 4 + round, right) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= static_cast<std::uint64_t>(count));
  return static_cast<std::int64_t>(value);
}

// A file in the IDX format, packed with gzip: two zero bytes, the type (8: u8), the number of axes, each axis as a
// big-endian 32-bit number, then the elements. http://yann.lecun.com/exdb/mnist (its description of the format)
torch::Tensor read_idx(const std::string& file) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> input(gzopen(file.c_str(), "rb"), gzclose);
  if (input == nullptr) tools::fail_errno(file, "read");
  const auto read = [&](void* out, std::int64_t size) {
    if (gzread(input.get(), out, static_cast<unsigned>(size)) != size) {
      tools::fail_input("{}: the file ends early or is damaged; it must be a whole IDX file packed with gzip", file);
    }
  };
  unsigned char start[4];
  read(start, sizeof start);
  constexpr int kBytes = 8, kMaxAxes = 4;
  if (start[0] != 0 || start[1] != 0 || start[2] != kBytes || start[3] < 1 || start[3] > kMaxAxes) {
    tools::fail_input(
        "{}: the file begins with {:02x} {:02x} {:02x} {:02x}; it must begin with 00 00 08 and 1 to {} axes", file,
        start[0], start[1], start[2], start[3], kMaxAxes);
  }
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;
  for (int axis = 0; axis < start[3]; ++axis) {
    unsigned char size[4];
    read(size, sizeof size);
    shape.push_back(std::int64_t{size[0]} << 24 | size[1] << 16 | size[2] << 8 | size[3]);
    if (__builtin_mul_overflow(count, shape.back(), &count) || count > std::numeric_limits<int>::max()) {
      tools::fail_input("{}: the axes hold 2^31 or more elements; they must hold fewer", file);
    }
  }
  torch::Tensor elements = torch::empty(shape, torch::kUInt8);
  read(elements.data_ptr(), count);
  return elements;
}

class Images : public Data {
 public:
  struct Set {
    torch::Tensor images;  // [n, height, width] u8
    torch::Tensor labels;  // [n] i64
  };

  Images(Set train, Set held_out) : train_(std::move(train)), held_out_(std::move(held_out)) {}

  Batch train(std::uint64_t seed, std::int64_t step, std::int64_t batch) const override {
    require_batch(batch);
    const std::int64_t count = train_.images.size(0);
    std::vector<std::int64_t> rows;
    for (std::int64_t row = 0; row < batch; ++row) {
      const std::int64_t drawn = step * batch + row;  // every image once in an epoch
      rows.push_back(permuted(drawn % count, count, seed, static_cast<std::uint64_t>(drawn / count)));
    }
    const torch::Tensor chosen = torch::tensor(rows);
    return {scaled(train_.images.index_select(0, chosen)), train_.labels.index_select(0, chosen)};
  }

  Batch held_out(std::int64_t index, std::int64_t batch) const override {
    require_batch(batch);
    const std::int64_t begin = index * batch, end = std::min(begin + batch, held_out_.images.size(0));
    TORCH_CHECK_INDEX(begin < end, "a part beyond the held-out data was asked for");
    return {scaled(held_out_.images.slice(0, begin, end)), held_out_.labels.slice(0, begin, end).clone()};
  }

  std::int64_t parts(std::int64_t batch) const override {
    require_batch(batch);
    return (held_out_.images.size(0) + batch - 1) / batch;
  }

  std::int64_t classes() const override { return 10; }

 private:
  static torch::Tensor scaled(const torch::Tensor& images) {
    return images.unsqueeze(1).to(torch::kFloat32).mul(2.0 / 255).sub(1.0);
  }

  Set train_, held_out_;
};

Images::Set read_images(const std::string& stem, std::int64_t limit) {
  const std::string folder = kFashionMnist;
  const std::string image_file = folder + stem + "-images-idx3-ubyte.gz";
  const std::string label_file = folder + stem + "-labels-idx1-ubyte.gz";
  torch::Tensor images = read_idx(image_file), labels = read_idx(label_file);
  if (images.dim() != 3 || labels.dim() != 1 || images.size(0) != labels.size(0) || images.size(0) == 0) {
    tools::fail_input("{}: the images are [{}] and the labels [{}]; they must be [n, height, width] and [n]",
                      image_file, fmt::join(images.sizes(), ", "), fmt::join(labels.sizes(), ", "));
  }
  if (limit > 0 && limit < images.size(0)) {
    images = images.slice(0, 0, limit).clone();
    labels = labels.slice(0, 0, limit);
  }
  return {images, labels.to(torch::kInt64)};
}

}  // namespace

std::unique_ptr<Data> text_data(const std::filesystem::path& file, std::int64_t time) {
  return std::make_unique<Text>(file, time);
}

std::unique_ptr<Data> fashion_mnist(std::int64_t limit) {
  if (!std::filesystem::exists(kFashionMnist)) return nullptr;
  if (limit < 0) tools::fail(tools::ExitCode::kUsage, "limit is {}; it must be 0 (all images) or more", limit);
  return std::make_unique<Images>(read_images("train", limit), read_images("t10k", 0));
}

std::filesystem::path moby_dick() {
  const char* folder = std::getenv("RMSNORM_LAB_DATA");
  return std::filesystem::path(folder != nullptr ? folder : RMSNORM_LAB_DATA_FOLDER) / "moby-dick.txt";
}

}  // namespace rmsnorm::lab
