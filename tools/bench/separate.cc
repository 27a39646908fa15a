#include "tools/bench/separate.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tools/arguments.h"

// Loops are compiled for several instruction sets, of which the CPU's best is taken. Functions that are chosen as a
// program starts run before the sanitizers do.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define RMSNORM_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RMSNORM_CLONES
#endif

namespace rmsnorm::tools {

namespace {

struct Bf16 {
  std::uint16_t bits;
};

inline float widen(float value) { return value; }
inline float widen(Bf16 value) {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

inline void store(float& to, float value) { to = value; }
inline void store(Bf16& to, float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  to.bits = static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// ---- The steps that the library has no call for ---------------------------------------------------------------------

template <class T>
RMSNORM_CLONES void add(T* __restrict out, const T* __restrict a, const T* __restrict b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(out[i], widen(a[i]) + widen(b[i]));
}

template <class T>
RMSNORM_CLONES void add_to(T* __restrict out, const T* __restrict a, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(out[i], widen(out[i]) + widen(a[i]));
}

template <class T>
RMSNORM_CLONES void multiply_by_silu(T* __restrict out, const T* __restrict y, const T* __restrict gate,
                                     std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = widen(gate[i]);
    store(out[i], widen(y[i]) * (g / (1.0f + std::exp(-g))));
  }
}

// Pairs of the first and the second half, in place.
template <class T>
RMSNORM_CLONES void rotate(T* __restrict y, const float* __restrict cos_sin, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = widen(y[i]), b = widen(y[i + half]);
    store(y[i], a * cos_sin[i] - b * cos_sin[i + half]);
    store(y[i + half], b * cos_sin[i] + a * cos_sin[i + half]);
  }
}

template <class T>
RMSNORM_CLONES float quantize_row(std::int8_t* __restrict out, const T* __restrict y, std::int64_t cols) {
  float largest = 0;
  for (std::int64_t i = 0; i < cols; ++i) largest = std::max(largest, std::fabs(widen(y[i])));
  const float scale = largest > 0 ? largest / 127.0f : 1.0f;
  for (std::int64_t i = 0; i < cols; ++i) {
    out[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(std::rint(widen(y[i]) / scale)));
  }
  return scale;
}

template <class T>
RMSNORM_CLONES float sum_of(const T* __restrict x, std::int64_t cols) {
  float sum = 0;
  for (std::int64_t i = 0; i < cols; ++i) sum += widen(x[i]);
  return sum;
}

template <class T>
RMSNORM_CLONES float sum_of_squares(const T* __restrict x, float mean, std::int64_t cols) {
  float sum = 0;
  for (std::int64_t i = 0; i < cols; ++i) {
    const float centred = widen(x[i]) - mean;
    sum += centred * centred;
  }
  return sum;
}

template <class T>
RMSNORM_CLONES void add_products(float* __restrict sums, const T* __restrict dy, const T* __restrict x, float mean,
                                 float inv, std::int64_t cols) {
  for (std::int64_t i = 0; i < cols; ++i) sums[i] += widen(dy[i]) * ((widen(x[i]) - mean) * inv);
}

template <class T>
RMSNORM_CLONES void add_row(float* __restrict sums, const T* __restrict dy, std::int64_t cols) {
  for (std::int64_t i = 0; i < cols; ++i) sums[i] += widen(dy[i]);
}

template <class T>
RMSNORM_CLONES void narrow(T* __restrict out, const float* __restrict sums, std::int64_t cols) {
  for (std::int64_t i = 0; i < cols; ++i) store(out[i], sums[i]);
}

// ---- The sequences ---------------------------------------------------------------------------------------------------

template <class T>
class Sequence {
 public:
  Sequence(const SeparateWork& work, Buffer& between) : work_(work) {
    cols_ = work.shape.back();
    rows_ = 1;
    for (std::size_t k = 0; k + 1 < work.shape.size(); ++k) rows_ *= work.shape[k];
    const std::size_t bytes = static_cast<std::size_t>(rows_ * cols_) * sizeof(T) +
                              static_cast<std::size_t>(2 * cols_) * sizeof(float) + 2 * kLine;
    if (between.size() < bytes) {
      between = Buffer();
      between = Buffer(bytes);
    }
    std::byte* at = between.data();
    at += (kLine - reinterpret_cast<std::uintptr_t>(at) % kLine) % kLine;
    sums_ = reinterpret_cast<float*>(at);
    between_ =
        reinterpret_cast<T*>(at + (static_cast<std::size_t>(2 * cols_) * sizeof(float) + kLine - 1) / kLine * kLine);
  }

  void add_rms_norm() const {
    add(rows("residual_out"), rows("x"), rows("residual"), count());
    norm(rows("out"), rows("residual_out"));
  }

  void add_layer_norm() const {
    add(rows("residual_out"), rows("x"), rows("residual"), count());
    const rn_view out = matrix(rows("out")), sum = matrix(rows("residual_out"));
    const rn_view weight = vector("weight"), bias = vector("bias");
    require(rn_layer_norm(&out, nullptr, nullptr, &sum, &weight, &bias, nullptr, &kOneThread));
  }

  void gated_rms_norm() const {
    const auto order = work_.settings.find("gate_order");
    if (order == work_.settings.end() || order->second == 0) {
      norm(between_, rows("x"), f32("inv_rms"));
      multiply_by_silu(rows("out"), between_, rows("gate"), count());
    } else {
      multiply_by_silu(between_, rows("x"), rows("gate"), count());
      norm(rows("out"), between_, f32("inv_rms"));
    }
  }

  void qk_norm_rope() const {
    const std::int64_t heads = work_.shape[work_.shape.size() - 2], tokens = rows_ / heads;
    heads_norm_rope("q", tokens, heads);
    heads_norm_rope("k", tokens, 1);
  }

  void rms_norm_quantize() const {
    norm(between_, rows("x"));
    quantize();
  }

  void add_rms_norm_quantize() const {
    add(rows("residual_out"), rows("x"), rows("residual"), count());
    norm(between_, rows("residual_out"));
    quantize();
  }

  void rms_norm_backward() const {
    const rn_view dx = matrix(rows("dx")), dy = matrix(rows("dy")), x = matrix(rows("x")), weight = vector("weight");
    require(rn_rms_norm_backward(&dx, nullptr, nullptr, &dy, &x, &weight, nullptr, nullptr, nullptr, &kOneThread));
    std::fill_n(sums_, cols_, 0.0f);
    const auto epsilon = static_cast<float>(rn_rms_norm_defaults().epsilon);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const T* const x_row = rows("x") + row * cols_;
      const float inv = 1 / std::sqrt(sum_of_squares(x_row, 0, cols_) / static_cast<float>(cols_) + epsilon);
      add_products(sums_, rows("dy") + row * cols_, x_row, 0, inv, cols_);
    }
    narrow(rows("dweight"), sums_, cols_);
  }

  void add_rms_norm_backward() const {
    rms_norm_backward();
    add_to(rows("dx"), rows("d_residual_out"), count());
  }

  void layer_norm_backward() const {
    const rn_view dx = matrix(rows("dx")), dy = matrix(rows("dy")), x = matrix(rows("x")), weight = vector("weight");
    require(rn_layer_norm_backward(&dx, nullptr, nullptr, &dy, &x, &weight, nullptr, nullptr, nullptr, &kOneThread));
    std::fill_n(sums_, 2 * cols_, 0.0f);
    const auto epsilon = static_cast<float>(rn_layer_norm_defaults().epsilon);
    for (std::int64_t row = 0; row < rows_; ++row) {
      const T* const x_row = rows("x") + row * cols_;
      const float mean = sum_of(x_row, cols_) / static_cast<float>(cols_);
      const float inv = 1 / std::sqrt(sum_of_squares(x_row, mean, cols_) / static_cast<float>(cols_) + epsilon);
      add_products(sums_, rows("dy") + row * cols_, x_row, mean, inv, cols_);
      add_row(sums_ + cols_, rows("dy") + row * cols_, cols_);
    }
    narrow(rows("dweight"), sums_, cols_);
    narrow(rows("dbias"), sums_ + cols_, cols_);
  }

 private:
  static constexpr std::size_t kLine = 64;
  static constexpr rn_execution kOneThread = {1, nullptr, nullptr};

  std::int64_t count() const { return rows_ * cols_; }
  T* rows(std::string_view name) const { return static_cast<T*>(work_.operands.find(name)->second); }
  float* f32(std::string_view name) const {
    const auto found = work_.operands.find(name);
    return found == work_.operands.end() ? nullptr : static_cast<float*>(found->second);
  }
  rn_view matrix(T* data) const { return rn_matrix(data, work_.type, rows_, cols_); }
  rn_view vector(std::string_view name) const { return rn_vector(rows(name), work_.type, cols_); }

  void norm(T* out, const T* x, float* inv_rms = nullptr) const {
    const rn_view to = matrix(out), from = matrix(const_cast<T*>(x)), weight = vector("weight");
    const rn_view saved = rn_vector(inv_rms, RN_F32, rows_);
    require(rn_rms_norm(&to, inv_rms ? &saved : nullptr, &from, &weight, nullptr, nullptr, &kOneThread));
  }

  void heads_norm_rope(const std::string& name, std::int64_t tokens, std::int64_t heads) const {
    T* const out = rows(name + "_out");
    const rn_view to = rn_matrix(out, work_.type, tokens * heads, cols_);
    const rn_view from = rn_matrix(rows(name), work_.type, tokens * heads, cols_);
    const rn_view weight = vector(name + "_weight");
    require(rn_rms_norm(&to, nullptr, &from, &weight, nullptr, nullptr, &kOneThread));
    const std::int64_t half = cols_ / 2;
    for (std::int64_t row = 0; row < tokens * heads; ++row) {
      rotate(out + row * cols_, f32("cos_sin") + row / heads * 2 * half, half);
    }
  }

  void quantize() const {
    auto* const codes = static_cast<std::int8_t*>(work_.operands.find("out")->second);
    float* const scales = f32("scale");
    for (std::int64_t row = 0; row < rows_; ++row) {
      scales[row] = quantize_row(codes + row * cols_, between_ + row * cols_, cols_);
    }
  }

  SeparateWork work_;
  std::int64_t rows_, cols_;
  float* sums_;
  T* between_;
};

template <class T>
struct Named {
  std::string_view op;
  void (Sequence<T>::*run)() const;
};

template <class T>
constexpr Named<T> kSequences[] = {
    {"add_rms_norm", &Sequence<T>::add_rms_norm},
    {"add_layer_norm", &Sequence<T>::add_layer_norm},
    {"rms_norm_backward", &Sequence<T>::rms_norm_backward},
    {"layer_norm_backward", &Sequence<T>::layer_norm_backward},
    {"add_rms_norm_backward", &Sequence<T>::add_rms_norm_backward},
    {"gated_rms_norm", &Sequence<T>::gated_rms_norm},
    {"qk_norm_rope", &Sequence<T>::qk_norm_rope},
    {"rms_norm_quantize", &Sequence<T>::rms_norm_quantize},
    {"add_rms_norm_quantize", &Sequence<T>::add_rms_norm_quantize},
};

template <class T>
std::function<void()> sequence(const SeparateWork& work, Buffer& between) {
  for (const Named<T>& named : kSequences<T>) {
    if (named.op != work.op) continue;
    return [calls = Sequence<T>(work, between), run = named.run] { (calls.*run)(); };
  }
  return {};
}

}  // namespace

std::vector<std::string_view> separate_operations() {
  std::vector<std::string_view> names;
  for (const auto& named : kSequences<float>) names.push_back(named.op);
  return names;
}

bool has_separate_form(const SeparateWork& work) {
  const auto names = separate_operations();
  const bool known = std::find(names.begin(), names.end(), work.op) != names.end();
  const bool settings = std::all_of(work.settings.begin(), work.settings.end(),
                                    [](const auto& setting) { return setting.first == "gate_order"; });
  return known && settings && (work.type == RN_F32 || work.type == RN_BF16);
}

std::function<void()> separate_calls(const SeparateWork& work, Buffer& between) {
  return work.type == RN_F32 ? sequence<float>(work, between) : sequence<Bf16>(work, between);
}

}  // namespace rmsnorm::tools
