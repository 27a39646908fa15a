// Offsets beyond 32 bits, in sparse memory: only the pages that are written to exist.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "reference/values.h"
#include "support/environment.h"

namespace rmsnorm::test {
namespace {

// Zeros that cost memory only where they are touched for writing.
class SparseMemory {
 public:
  explicit SparseMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~SparseMemory() {
    if (good()) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  bool good() const { return data_ != MAP_FAILED; }
  char* data() const { return static_cast<char*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// Rows of two, one gigabyte of elements apart: the third already stands beyond 2^31 elements, the last beyond 2^32
// bytes many times. A product of 32 bits anywhere sends it elsewhere.
TEST(PublicFaults, BL27_offsets_of_64_bits) {
  constexpr std::int64_t kStride = (std::int64_t{1} << 30) + 16, kRows = 7, kCols = 24;
  const SparseMemory memory(static_cast<std::size_t>(kRows * kStride) * 4);
  ASSERT_TRUE(memory.good());
  for (const rn_type type : {RN_F32, RN_BF16}) {
    rn_view x = rn_matrix(memory.data(), type, kRows, kCols);
    x.strides[0] = kStride;
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t i = 0; i < kCols; ++i)
        reference::store(type, memory.data(), r * kStride + i, (r + 1) * (i + 1));
    }
    std::vector<float> expected(kCols), row(kCols);
    for (std::int64_t i = 0; i < kCols; ++i) row[static_cast<std::size_t>(i)] = static_cast<float>(i + 1);
    for (const std::int32_t threads : {1, 2}) {
      const rn_execution execution{threads, nullptr, nullptr};
      std::vector<float> out(kRows * kCols, -77);
      const rn_view o = rn_matrix(out.data(), RN_F32, kRows, kCols);
      rn_rms_norm_options options = rn_rms_norm_defaults();
      options.epsilon = 0;
      ASSERT_EQ(rn_rms_norm(&o, nullptr, &x, nullptr, nullptr, &options, &execution), RN_OK) << rn_last_error();
      double sum = 0;
      for (const float v : row) sum += static_cast<double>(v) * static_cast<double>(v);
      for (std::int64_t r = 0; r < kRows; ++r) {  // every row is a multiple of the first, so all norms are the same
        for (std::int64_t i = 0; i < kCols; ++i) {
          const double exact = static_cast<double>(i + 1) / std::sqrt(sum / kCols);
          ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(r * kCols + i)]), exact, 4e-7 * exact) << r;
        }
      }
    }
    const rn_execution own{2, nullptr, nullptr};
    ASSERT_EQ(rn_center(&x, &x, &own), RN_OK) << rn_last_error();  // in place: written where it was read
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t i = 0; i < kCols; ++i) {
        const double exact = static_cast<double>(r + 1) * (static_cast<double>(i + 1) - 12.5);
        ASSERT_EQ(reference::load(type, memory.data(), r * kStride + i), reference::round_to(type, exact)) << r;
      }
    }
  }
}

// 2^23 + 3 rows of 5: dense rows whose count, and count times columns, pass limits of f32 and of alignment tricks.
TEST(PublicFaults, BL27_many_rows_of_five) {
  constexpr std::int64_t kRows = (std::int64_t{1} << 23) + 3, kCols = 5;
  std::vector<std::uint16_t> x(kRows * kCols), out(kRows * kCols);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(0x3f80 + (i * 7919) % 128);  // 1 .. 2
  const rn_view in = rn_matrix(x.data(), RN_BF16, kRows, kCols), o = rn_matrix(out.data(), RN_BF16, kRows, kCols);
  ASSERT_EQ(rn_rms_norm(&o, nullptr, &in, nullptr, nullptr, nullptr, nullptr), RN_OK) << rn_last_error();
  constexpr std::int64_t kStep = 4099;
  for (std::int64_t step = 0; step <= kRows / kStep + 1; ++step) {
    const std::int64_t r = std::min(step * kStep, kRows - 1);  // the last row, too
    std::uint16_t alone[kCols];
    const rn_view row = rn_matrix(&x[static_cast<std::size_t>(r * kCols)], RN_BF16, 1, kCols);
    const rn_view alone_view = rn_matrix(alone, RN_BF16, 1, kCols);
    ASSERT_EQ(rn_rms_norm(&alone_view, nullptr, &row, nullptr, nullptr, nullptr, nullptr), RN_OK);
    for (std::int64_t i = 0; i < kCols; ++i) {
      ASSERT_EQ(out[static_cast<std::size_t>(r * kCols + i)], alone[i]) << "row " << r;
    }
  }
}

std::int64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    std::int64_t kilobytes = 0;
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

// 1,048,641 x 4096 elements are more than 2^32. The rows are one row that is read again and again; the 8.6 GB that are
// written need not be there on every machine.
TEST(PublicFaults, BL27_more_than_2_32_elements) {
  constexpr std::int64_t kRows = 1048641, kCols = 4096, kBytes = kRows * kCols * 2;
  static_assert(kRows * kCols > std::int64_t{1} << 32);
  if (std::getenv("RMSNORM_TEST_LONG") == nullptr || free_memory() < kBytes + (std::int64_t{2} << 30)) {
    GTEST_SKIP() << "needs RMSNORM_TEST_LONG=1, half a minute and " << kBytes / 1000000000 + 2 << " GB of memory";
  }
  std::vector<std::uint16_t> row(kCols), alone(kCols);
  reference::fill_row(row.data(), reference::Values::kNormal, RN_BF16, 1, reference::Stream::kX, 0, kCols);
  const rn_view one = rn_matrix(row.data(), RN_BF16, 1, kCols), one_out = rn_matrix(alone.data(), RN_BF16, 1, kCols);
  ASSERT_EQ(rn_rms_norm(&one_out, nullptr, &one, nullptr, nullptr, nullptr, nullptr), RN_OK) << rn_last_error();
  rn_view x = rn_matrix(row.data(), RN_BF16, kRows, kCols);
  x.strides[0] = 0;
  const SparseMemory memory(static_cast<std::size_t>(kBytes));
  ASSERT_TRUE(memory.good());
  madvise(memory.data(), static_cast<std::size_t>(kBytes), MADV_HUGEPAGE);
  const rn_view out = rn_matrix(memory.data(), RN_BF16, kRows, kCols);
  ASSERT_EQ(rn_rms_norm(&out, nullptr, &x, nullptr, nullptr, nullptr, nullptr), RN_OK) << rn_last_error();
  for (std::int64_t r = kRows - 1; r >= 0; r -= 101) {
    ASSERT_EQ(std::memcmp(memory.data() + r * kCols * 2, alone.data(), kCols * 2), 0) << "row " << r;
  }
}

}  // namespace
}  // namespace rmsnorm::test
