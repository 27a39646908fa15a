// Exits with 0 if the installed library can be called from C++, throws what it promises, and runs its threads.
#include <rmsnorm/rmsnorm.hpp>
#include <vector>

int main() {
  constexpr int kRows = 2048, kCols = 1024;  // enough for the pool
  std::vector<float> x(kRows * kCols, 3.0F), out(x.size());
  rmsnorm::rms_norm(rmsnorm::matrix(out.data(), kRows, kCols), {}, rmsnorm::matrix(x.data(), kRows, kCols), {}, {},
                    {.epsilon = 0});
  for (const float value : out) {
    if (value != 1) return 1;
  }
  try {
    rmsnorm::center(rmsnorm::matrix(out.data(), kRows, kCols), rmsnorm::matrix(x.data(), kCols, kRows));
  } catch (const rmsnorm::Error& error) {
    return error.code() == RN_INVALID_VALUE ? 0 : 2;
  }
  return 3;
}
