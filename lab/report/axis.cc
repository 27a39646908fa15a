#include "lab/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lab/report/text.h"

namespace rmsnorm::lab {

namespace {

constexpr double kMargin = 0.04;  // of the range, at both ends

// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// With as many decimals as the step has; numbers of a far magnitude as powers of ten.
std::string linear_text(double value, double step, double largest) {
  if (std::abs(value) < step * 1e-9) return "0";
  if (largest >= 1e6 || largest < 1e-3) return number_text(value);
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text[0] == '-') text.replace(0, 1, "−");
  return text;
}

}  // namespace

Axis::Axis(const std::vector<double>& values, bool log, std::size_t most, bool ticks_at_values) : log_(log) {
  std::set<double> distinct;
  for (const double value : values) {
    if (shows(value)) distinct.insert(value);
  }
  if (distinct.empty()) {
    low_ = log ? 0.1 : 0;
    high_ = log ? 10 : 1;
  } else {
    low_ = *distinct.begin();
    high_ = *distinct.rbegin();
  }
  log_ ? choose_log(most) : choose_linear(most);
  if (ticks_at_values && !distinct.empty() && distinct.size() <= most) {
    ticks_.clear();
    for (const double value : distinct) ticks_.push_back({value, number_text(value)});
  }
}

bool Axis::shows(double value) const { return std::isfinite(value) && (!log_ || value > 0); }

double Axis::share(double value) const {
  return log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
}

void Axis::thin_out() {
  std::vector<Tick> kept;
  for (std::size_t i = 0; i < ticks_.size(); i += 2) kept.push_back(ticks_[i]);
  ticks_ = kept;
}

void Axis::choose_linear(std::size_t most) {
  if (low_ >= 0 && low_ < 0.25 * high_) {
    low_ = 0;  // near enough to be worth showing
  } else if (low_ == high_) {
    const double around = low_ == 0 ? 1 : std::abs(low_) / 10;
    low_ -= around;
    high_ += around;
  }
  if (low_ == high_) high_ = low_ + 1;
  const double margin = kMargin * (high_ - low_);
  if (low_ != 0) low_ -= margin;
  high_ += margin;
  const double step = round_step((high_ - low_) / static_cast<double>(most));
  const double largest = std::max(std::abs(low_), std::abs(high_));
  for (double k = std::ceil(low_ / step); k * step <= high_ && ticks_.size() < 2 * most; ++k) {
    ticks_.push_back({k * step, linear_text(k * step, step, largest)});
  }
}

void Axis::choose_log(std::size_t most) {
  if (low_ == high_) {
    low_ /= 2;
    high_ *= 2;
  }
  const double margin = std::pow(high_ / low_, kMargin);
  low_ /= margin;
  high_ *= margin;
  const double decades = std::log10(high_ / low_);
  if (decades < 0.7) {  // too short for powers: even steps, where they fall
    const double step = round_step((high_ - low_) / static_cast<double>(most));
    for (double k = std::ceil(low_ / step); k * step <= high_ && ticks_.size() < 2 * most; ++k) {
      ticks_.push_back({k * step, linear_text(k * step, step, high_)});
    }
    return;
  }
  const int every = std::max(1, static_cast<int>(std::ceil(decades / static_cast<double>(most))));
  const int first = static_cast<int>(std::floor(std::log10(low_)));
  for (int exponent = first; exponent <= static_cast<int>(std::ceil(std::log10(high_))); ++exponent) {
    if (exponent % every != 0) continue;
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor != 1 && decades > 2.5) continue;
      const double value = factor * std::pow(10.0, exponent);
      if (value >= low_ && value <= high_) ticks_.push_back({value, number_text(value)});
    }
  }
}

}  // namespace rmsnorm::lab
