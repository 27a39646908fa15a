// Two rows, one of them with squares that f32 cannot hold, and a call that is refused.
#include <cstddef>
#include <cstdio>
#include <vector>

#include "rmsnorm/rmsnorm.hpp"

int main() {
  const std::vector<float> x = {1, 2, 3, 4, -1e30F, 0, 1e30F, 2e30F};
  const std::vector<float> weight = {1, 1, 2, 2};
  std::vector<float> out(x.size());

  rmsnorm::rms_norm(rmsnorm::matrix(out.data(), 2, 4), {}, rmsnorm::matrix(x.data(), 2, 4),
                    rmsnorm::vector(weight.data(), 4), {}, {.epsilon = 1e-5});

  for (std::size_t i = 0; i < out.size(); ++i) {
    std::printf("%.6f%s", static_cast<double>(out[i]), i % 4 == 3 ? "\n" : " ");
  }

  const rmsnorm::Status status =
      rmsnorm::try_rms_norm(rmsnorm::matrix(out.data(), 2, 4), {}, rmsnorm::matrix(x.data(), 2, 3));
  std::printf("%s\n", status.message.c_str());
}
