// One axis of a plot: its range and its ticks.
#ifndef RMSNORM_LAB_REPORT_AXIS_H_
#define RMSNORM_LAB_REPORT_AXIS_H_

#include <string>
#include <vector>

namespace rmsnorm::lab {

struct Tick {
  double value;
  std::string text;
};

class Axis {
 public:
  // Over the finite values (and positive ones, of a logarithmic axis). `most`: ticks.
  Axis(const std::vector<double>& values, bool log, std::size_t most, bool ticks_at_values);

  bool shows(double value) const;
  double share(double value) const;  // 0 at the low end, 1 at the high one
  const std::vector<Tick>& ticks() const { return ticks_; }
  void thin_out();  // leaves out every other tick

 private:
  void choose_linear(std::size_t most);
  void choose_log(std::size_t most);

  bool log_;
  double low_ = 0, high_ = 1;
  std::vector<Tick> ticks_;
};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_REPORT_AXIS_H_
