// What every operation shares: types, status, views, execution. Read rmsnorm.hpp first.
#ifndef RMSNORM_CORE_HPP_
#define RMSNORM_CORE_HPP_

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "rmsnorm/core.h"

namespace rmsnorm {

// ---- Types ----------------------------------------------------------------------------------------------------------

// A 16-bit IEEE number, as bits: storage, not arithmetic.
struct f16 {
  std::uint16_t bits;
};
// The upper half of an f32, as bits.
struct bf16 {
  std::uint16_t bits;
};

// OCP 8-bit numbers, as bits.
struct f8e4m3 {
  std::uint8_t bits;
};
struct f8e5m2 {
  std::uint8_t bits;
};

// The rn_type of a C++ type. _Float16, __bf16 and the like have no entry: hand their address to View as f16 or bf16.
template <class T>
inline constexpr rn_type type_of = [] {
  using U = std::remove_cv_t<T>;
  constexpr bool kFloat = std::is_same_v<U, float> || std::is_same_v<U, double>;
  constexpr bool kNarrow = std::is_same_v<U, f16> || std::is_same_v<U, bf16>;
  constexpr bool kQuantised = std::is_same_v<U, std::int8_t> || std::is_same_v<U, f8e4m3> || std::is_same_v<U, f8e5m2>;
  constexpr bool kIndex = std::is_same_v<U, std::int32_t> || std::is_same_v<U, std::int64_t>;
  static_assert(
      kFloat || kNarrow || kQuantised || kIndex,
      "rmsnorm: elements are float, double, rmsnorm::f16, bf16, f8e4m3 or f8e5m2, int8_t, int32_t or int64_t");
  if constexpr (std::is_same_v<U, std::int8_t>) return RN_I8;
  if constexpr (std::is_same_v<U, f8e4m3>) return RN_F8E4M3;
  if constexpr (std::is_same_v<U, f8e5m2>) return RN_F8E5M2;
  if constexpr (std::is_same_v<U, std::int32_t>) return RN_I32;
  if constexpr (std::is_same_v<U, std::int64_t>) return RN_I64;
  if constexpr (std::is_same_v<U, double>) return RN_F64;
  if constexpr (std::is_same_v<U, f16>) return RN_F16;
  if constexpr (std::is_same_v<U, bf16>) return RN_BF16;
  return RN_F32;
}();

// ---- Status ---------------------------------------------------------------------------------------------------------

// What a call returned, with its message.
struct [[nodiscard]] Status {
  rn_status code = RN_OK;
  std::string message;

  bool ok() const noexcept { return code == RN_OK; }
};

// Thrown by the forms without try_. what() is the library's message.
class Error : public std::invalid_argument {
 public:
  Error(rn_status code, const char* message) : std::invalid_argument(message), code_(code) {}
  rn_status code() const noexcept { return code_; }

 private:
  rn_status code_;
};

// ---- Views ----------------------------------------------------------------------------------------------------------

// A tensor that somebody else owns (rn_view). Default-constructed: absent.
class View {
 public:
  View() = default;
  explicit View(const rn_view& view) : view_(view), present_(true) {}

  // shape and strides in elements; without strides: dense, row-major.
  template <class T>
  View(T* data, std::initializer_list<std::int64_t> shape)
      : View(rn_tensor(address(data), type_of<T>, static_cast<std::int32_t>(shape.size()), shape.begin())) {}
  template <class T>
  View(T* data, std::initializer_list<std::int64_t> shape, std::initializer_list<std::int64_t> strides)
      : View(data, shape) {
    if (strides.size() != shape.size()) {
      view_.rank = -1;  // every operation refuses it with a message
      return;
    }
    int axis = 0;
    for (const std::int64_t stride : strides) {
      if (axis < RN_MAX_RANK) view_.strides[axis++] = stride;
    }
  }

  // Elements before the last axis, and on it; 0 and 0 where absent.
  std::int64_t rows() const noexcept {
    std::int64_t count = present_ ? 1 : 0;
    for (int axis = 0; axis + 1 < view_.rank && axis < RN_MAX_RANK; ++axis) count *= view_.shape[axis];
    return count;
  }
  std::int64_t cols() const noexcept {
    return view_.rank < 1 || view_.rank > RN_MAX_RANK ? 0 : view_.shape[view_.rank - 1];
  }

  const rn_view* get() const noexcept { return present_ ? &view_ : nullptr; }

 private:
  template <class T>
  static void* address(T* data) noexcept {
    return const_cast<void*>(static_cast<const void*>(data));  // inputs are never written to
  }

  rn_view view_{};
  bool present_ = false;
};

// A dense [rows, cols] matrix; a dense [cols] vector.
template <class T>
View matrix(T* data, std::int64_t rows, std::int64_t cols) {
  return View(data, {rows, cols});
}
template <class T>
View vector(T* data, std::int64_t cols) {
  return View(data, {cols});
}

// ---- Execution ------------------------------------------------------------------------------------------------------

// Where the work runs; see rn_execution.
struct Execution {
  int threads = 0;                         // 0: all CPUs; 1: the calling thread
  rn_parallel_for parallel_for = nullptr;  // null: the built-in pool
  void* parallel_context = nullptr;
};

namespace detail {

inline Status status(rn_status code) { return {code, code == RN_OK ? std::string() : std::string(rn_last_error())}; }

inline void require(rn_status code) {
  if (code != RN_OK) throw Error(code, rn_last_error());
}

inline rn_execution c_execution(const Execution& e) noexcept { return {e.threads, e.parallel_for, e.parallel_context}; }

// Scratch of the calling thread, which grows to the most that any call on it has asked for.
inline rn_scratch scratch(std::int64_t bytes) {
  thread_local std::vector<std::uint64_t> memory;
  const std::size_t words = bytes < 0 ? 0 : (static_cast<std::size_t>(bytes) + 7) / 8;
  if (memory.size() < words) {
    memory.clear();
    memory.shrink_to_fit();  // first, so that both never exist at once
    memory.resize(words);
  }
  return {memory.data(), bytes};
}

}  // namespace detail

}  // namespace rmsnorm

#endif  // RMSNORM_CORE_HPP_
