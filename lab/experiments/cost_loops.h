// The norms as plain loops over one row, for any type of number: float, to be timed, and Counted, to be counted.
#ifndef RMSNORM_LAB_EXPERIMENTS_COST_LOOPS_H_
#define RMSNORM_LAB_EXPERIMENTS_COST_LOOPS_H_

#include <cmath>
#include <cstdint>

namespace rmsnorm::lab {

// A number that counts what is done with it.
struct Operations {
  std::int64_t additions = 0, multiplications = 0, divisions = 0, roots = 0;
  std::int64_t total() const { return additions + multiplications + divisions + roots; }
};

struct Counted {
  Counted(double v = 0) : value(v) {}
  double value;
  static Operations& done() {
    static Operations operations;
    return operations;
  }
};

inline Counted operator+(Counted a, Counted b) { return ++Counted::done().additions, a.value + b.value; }
inline Counted operator-(Counted a, Counted b) { return ++Counted::done().additions, a.value - b.value; }
inline Counted operator*(Counted a, Counted b) { return ++Counted::done().multiplications, a.value * b.value; }
inline Counted operator/(Counted a, Counted b) { return ++Counted::done().divisions, a.value / b.value; }
inline Counted sqrt(Counted a) { return ++Counted::done().roots, std::sqrt(a.value); }

// y = x / sqrt(mean(x^2) + e) * weight
template <class T>
void rms_norm_row(T* y, const T* x, const T* weight, std::int64_t d, T epsilon) {
  using std::sqrt;
  T sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum = sum + x[i] * x[i];
  const T inv = T(1) / sqrt(sum / T(static_cast<float>(d)) + epsilon);
  for (std::int64_t i = 0; i < d; ++i) y[i] = x[i] * inv * weight[i];
}

// y = (x - mean) / sqrt(mean((x - mean)^2) + e) * weight + bias
template <class T>
void layer_norm_row(T* y, const T* x, const T* weight, const T* bias, std::int64_t d, T epsilon) {
  using std::sqrt;
  T sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum = sum + x[i];
  const T mean = sum / T(static_cast<float>(d));
  T squares = 0;
  for (std::int64_t i = 0; i < d; ++i) {
    const T centred = x[i] - mean;
    squares = squares + centred * centred;
  }
  const T inv = T(1) / sqrt(squares / T(static_cast<float>(d)) + epsilon);
  for (std::int64_t i = 0; i < d; ++i) y[i] = (x[i] - mean) * inv * weight[i] + bias[i];
}

// The same by E[x^2] - mean^2, in one pass less; it loses digits where the mean is large.
template <class T>
void layer_norm_one_pass_row(T* y, const T* x, const T* weight, const T* bias, std::int64_t d, T epsilon) {
  using std::sqrt;
  T sum = 0, squares = 0;
  for (std::int64_t i = 0; i < d; ++i) {
    sum = sum + x[i];
    squares = squares + x[i] * x[i];
  }
  const T mean = sum / T(static_cast<float>(d));
  const T inv = T(1) / sqrt(squares / T(static_cast<float>(d)) - mean * mean + epsilon);
  for (std::int64_t i = 0; i < d; ++i) y[i] = (x[i] - mean) * inv * weight[i] + bias[i];
}

// Over rows of float, compiled without vector instructions.
void scalar_rms_norm(float* y, const float* x, const float* weight, std::int64_t rows, std::int64_t d, float epsilon);
void scalar_layer_norm(float* y, const float* x, const float* weight, const float* bias, std::int64_t rows,
                       std::int64_t d, float epsilon);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_COST_LOOPS_H_
