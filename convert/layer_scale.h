// LayerScale: a vector that multiplies what a branch adds to the stream, x += l * (W a + b).
#ifndef RMSNORM_CONVERT_LAYER_SCALE_H_
#define RMSNORM_CONVERT_LAYER_SCALE_H_

#include <algorithm>
#include <cmath>
#include <vector>

namespace rmsnorm::convert {

// The power of two that stands for a LayerScale vector: the nearest to the median of the magnitudes, 1 for a median 0.
inline double power_of_scale(std::vector<double> scale) {
  if (scale.empty()) return 1;
  for (double& value : scale) value = std::fabs(value);
  std::sort(scale.begin(), scale.end());
  const std::size_t middle = scale.size() / 2;
  const double median = scale.size() % 2 == 1 ? scale[middle] : (scale[middle - 1] + scale[middle]) / 2;
  if (!(median > 0) || !std::isfinite(median)) return 1;
  const double below = std::ldexp(1.0, std::ilogb(median));
  return median - below > 2 * below - median ? 2 * below : below;
}

}  // namespace rmsnorm::convert

#endif  // RMSNORM_CONVERT_LAYER_SCALE_H_
