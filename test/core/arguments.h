// A valid call of rn_add_layer_norm, the operation with most operands, on [2, 3, 4] elements, for tests to spoil.
#ifndef RMSNORM_TEST_CORE_ARGUMENTS_H_
#define RMSNORM_TEST_CORE_ARGUMENTS_H_

#include <cstring>
#include <vector>

#include "rmsnorm/rmsnorm.h"

namespace rmsnorm_test {

inline constexpr int64_t kShape[] = {2, 3, 4};

struct Buffer {
  alignas(64) unsigned char bytes[512];
};

struct Arguments {
  Buffer buffers[8];
  rn_view out = rn_tensor(buffers[0].bytes, RN_F32, 3, kShape);
  rn_view residual_out = rn_tensor(buffers[1].bytes, RN_F32, 3, kShape);
  rn_view mean = rn_tensor(buffers[2].bytes, RN_F32, 2, kShape);
  rn_view inv = rn_tensor(buffers[3].bytes, RN_F32, 2, kShape);
  rn_view x = rn_tensor(buffers[4].bytes, RN_F32, 3, kShape);
  rn_view residual = rn_tensor(buffers[5].bytes, RN_F32, 3, kShape);
  rn_view weight = rn_vector(buffers[6].bytes, RN_F32, 4);
  rn_view bias = rn_vector(buffers[7].bytes, RN_F32, 4);
  rn_add_rms_norm_options rms = rn_add_rms_norm_defaults();
  rn_add_layer_norm_options layer = rn_add_layer_norm_defaults();
  rn_execution execution = {};

  Arguments() { std::memset(buffers, 0x3c, sizeof buffers); }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  rn_status add_layer_norm() const {
    return rn_add_layer_norm(&out, &residual_out, &mean, &inv, &x, &residual, &weight, &bias, &layer, &execution);
  }
  rn_status add_rms_norm() const {
    return rn_add_rms_norm(&out, &residual_out, &inv, &x, &residual, &weight, &bias, &rms, &execution);
  }
  rn_status layer_norm() const { return rn_layer_norm(&out, &mean, &inv, &x, &weight, &bias, &layer.norm, &execution); }
  rn_status rms_norm() const { return rn_rms_norm(&out, &inv, &x, &weight, &bias, &rms.norm, &execution); }
  rn_status center() const { return rn_center(&out, &x, &execution); }

  // No byte of any buffer has changed since the constructor.
  bool untouched() const {
    static const std::vector<unsigned char> pattern(sizeof buffers, 0x3c);
    return std::memcmp(buffers, pattern.data(), sizeof buffers) == 0;
  }
};

// Stores a number in an enumeration that has no such member, as a C caller can.
template <class Enum>
void set_number(Enum* target, int number) {
  static_assert(sizeof(Enum) == sizeof(int));
  std::memcpy(target, &number, sizeof number);
}

}  // namespace rmsnorm_test

#endif  // RMSNORM_TEST_CORE_ARGUMENTS_H_
