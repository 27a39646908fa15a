#include "lab/report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/report/axis.h"
#include "lab/report/text.h"

namespace rmsnorm::lab {

namespace {

// Okabe and Ito's colours that can be told apart with any colour vision, but their yellow, which white paper swallows.
constexpr std::string_view kColours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"};
constexpr std::string_view kDashes[] = {"", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2"};
constexpr std::size_t kMarkers = 7;
constexpr std::size_t kMostBars = 12;    // points of a line with bars; more get a band
constexpr std::size_t kMostMarked = 24;  // points of a line that all have a marker; of more, some
constexpr double kFont = 13, kSmall = 12, kLine = 16;
constexpr double kPlotHeight = 230;
constexpr std::size_t kMostTicksOfY = 6;
constexpr double kBarStep = 4;  // between the bars of series at one x

class Drawing {
 public:
  explicit Drawing(const Plot& plot)
      : plot_(plot),
        x_(values_of(plot, true), plot.log_x, plot.same_scale ? kMostTicksOfY : 7, plot.log_x),
        y_(values_of(plot, false), plot.log_y, kMostTicksOfY, false) {}

  std::string text() {
    lay_out();
    grid();
    for (std::size_t i = 0; i < plot_.series.size(); ++i) series(i);
    const double height = legend();
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" role=\"img\" "
               "font-family=\"sans-serif\" font-size=\"{2}\" fill=\"#111\">\n<title>{3}</title>\n"
               "<rect width=\"{0}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n",
               kSvgWidth, height, kFont, escaped(plot_.title)) +
           body_ + "</svg>\n";
  }

 private:
  static std::vector<double> values_of(const Plot& plot, bool x) {
    std::vector<double> values;
    for (const Series& s : plot.series) {
      for (const auto* list : {&s.x, &s.y, &s.low, &s.high}) {
        if (plot.same_scale || (list == &s.x) == x) values.insert(values.end(), list->begin(), list->end());
      }
    }
    return values;
  }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    body_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  double px(double value) const { return left_ + inset_ + x_.share(value) * (right_ - left_ - 2 * inset_); }
  double py(double value) const { return bottom_ - y_.share(value) * (bottom_ - top_); }
  // The end of an interval. One that reaches to zero on a logarithmic axis, or without end, ends at the frame.
  double end_py(double value, double frame) const { return y_.shows(value) ? py(value) : frame; }

  bool has_bars(const Series& s) const {
    const std::size_t count = s.x.size();
    return count > 0 && s.low.size() >= count && s.high.size() >= count && (!plot_.lines || count <= kMostBars);
  }
  // From the x of its points, so that the bars of several series stand side by side.
  double shift(std::size_t index) const {
    return (static_cast<double>(index) - (static_cast<double>(plot_.series.size()) - 1) / 2) * kBarStep;
  }

  void lay_out() {
    const auto y_lines = wrapped(plot_.y_label, kPlotHeight, kFont);
    double widest = 0;
    for (const Tick& tick : y_.ticks()) widest = std::max(widest, text_width(tick.text) * kSmall);
    left_ = 6 + kLine * static_cast<double>(y_lines.size()) + 4 + widest + 8;
    right_ = plot_.same_scale ? left_ + kPlotHeight : kSvgWidth - 16;  // both axes have one range
    top_ = 12;
    bottom_ = top_ + kPlotHeight;
    for (const Series& s : plot_.series) {
      if (has_bars(s)) inset_ = -shift(0);
    }
    while (x_.ticks().size() > 2 && ticks_overlap()) x_.thin_out();
    for (std::size_t i = 0; i < y_lines.size(); ++i) {
      const double x = 6 + kFont + kLine * static_cast<double>(i), y = (top_ + bottom_) / 2;
      add("<text x=\"{0:.1f}\" y=\"{1:.1f}\" transform=\"rotate(-90 {0:.1f} {1:.1f})\" "
          "text-anchor=\"middle\">{2}</text>",
          x, y, escaped(y_lines[i]));
    }
    below_ = bottom_ + kLine + 4;
    for (const std::string& line : wrapped(plot_.x_label, right_ - left_, kFont)) {
      below_ += kLine;
      add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", (left_ + right_) / 2, below_,
          escaped(line));
    }
  }

  // Where the label of a tick of x stands: under it, but inside the drawing.
  double label_x(const Tick& tick) const {
    const double half = text_width(tick.text) * kSmall / 2;
    return std::clamp(px(tick.value), half + 1, kSvgWidth - half - 1);
  }

  bool ticks_overlap() const {
    double end = -1;
    for (const Tick& tick : x_.ticks()) {
      const double half = text_width(tick.text) * kSmall / 2;
      if (label_x(tick) - half < end + 4) return true;
      end = label_x(tick) + half;
    }
    return false;
  }

  void grid() {
    add("<g stroke=\"#ddd\" stroke-width=\"1\">");
    for (const Tick& tick : x_.ticks()) {
      add("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/>", px(tick.value), top_, bottom_ + 4);
    }
    for (const Tick& tick : y_.ticks()) {
      add("<path d=\"M{0:.1f} {1:.1f}H{2:.1f}\"/>", left_ - 4, py(tick.value), right_);
    }
    add("</g>\n<path d=\"M{:.1f} {:.1f}V{:.1f}H{:.1f}\" fill=\"none\" stroke=\"#111\"/>", left_, top_, bottom_, right_);
    add("<g font-size=\"{}\">", kSmall);
    for (const Tick& tick : x_.ticks()) {
      add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", label_x(tick), bottom_ + kLine,
          escaped(tick.text));
    }
    for (const Tick& tick : y_.ticks()) {
      add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", left_ - 7, py(tick.value) + 4,
          escaped(tick.text));
    }
    add("</g>");
  }

  std::string marker(std::size_t kind, double x, double y, std::string_view colour) const {
    const auto path = [&](std::string_view shape) {
      return fmt::format("<path d=\"M{:.1f} {:.1f}{}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.7\"/>", x, y, shape,
                         colour);
    };
    switch ((kind + kind / std::size(kColours)) % kMarkers) {  // another one when the colours begin again
      case 0:
        return fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.8\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.7\"/>", x, y,
            colour);
      case 1:
        return path("m-3.6 -3.6h7.2v7.2h-7.2z");
      case 2:
        return path("m0 -4.6l4.4 7.8h-8.8z");
      case 3:
        return path("m0 -5l5 5l-5 5l-5 -5z");
      case 4:
        return path("m0 4.6l4.4 -7.8h-8.8z");
      case 5:
        return fmt::format(
            "<path d=\"M{:.1f} {:.1f}m-4.5 0h9m-4.5 -4.5v9\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>", x, y,
            colour);
      default:
        return fmt::format(
            "<path d=\"M{:.1f} {:.1f}m-3.6 -3.6l7.2 7.2m0 -7.2l-7.2 7.2\" fill=\"none\" stroke=\"{}\" "
            "stroke-width=\"2\"/>",
            x, y, colour);
    }
  }

  bool drawn(const Series& s, std::size_t i) const { return x_.shows(s.x[i]) && y_.shows(s.y[i]); }

  void series(std::size_t index) {
    const Series& s = plot_.series[index];
    const std::string_view colour = kColours[index % std::size(kColours)];
    const std::size_t count = std::min(s.x.size(), s.y.size());
    const bool bars = has_bars(s);
    const double aside = bars ? shift(index) : 0;
    if (!bars && s.low.size() >= count && s.high.size() >= count) band(s, count, colour);
    std::string line;
    bool pen_down = false;
    for (std::size_t i = 0; i < count; ++i) {
      if (!drawn(s, i)) {
        ++left_out_;
        pen_down = false;
        continue;
      }
      line += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", px(s.x[i]) + aside, py(s.y[i]));
      pen_down = true;
    }
    if (plot_.lines && !line.empty()) {
      add("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" stroke-dasharray=\"{}\" "
          "stroke-linejoin=\"round\"/>",
          line, colour, dash(index));
    }
    // Of many points of a line every so many-th, each series at others.
    const std::size_t every = plot_.lines && count > kMostMarked ? count / 8 : 1;
    for (std::size_t i = every > 1 ? index * every / 7 % every : 0; i < count; i += every) {
      if (!drawn(s, i)) continue;
      const double x = px(s.x[i]) + aside;
      if (bars && !std::isnan(s.low[i]) && !std::isnan(s.high[i])) {
        const double low = end_py(s.low[i], bottom_), high = end_py(s.high[i], top_);
        const auto cap = [&](double value, double y) {
          return y_.shows(value) ? fmt::format("M{:.1f} {:.1f}h6", x - 3, y) : "";
        };
        add("<path class=\"interval\" d=\"M{:.1f} {:.1f}V{:.1f}{}{}\" fill=\"none\" stroke=\"{}\" "
            "stroke-width=\"1.4\"/>",
            x, low, high, cap(s.low[i], low), cap(s.high[i], high), colour);
      }
      add("{}", marker(index, x, py(s.y[i]), colour));
    }
  }

  void band(const Series& s, std::size_t count, std::string_view colour) {
    std::string there, back;
    for (std::size_t i = 0; i < count; ++i) {
      if (!x_.shows(s.x[i]) || std::isnan(s.low[i]) || std::isnan(s.high[i])) continue;
      there += fmt::format("{}{:.1f} {:.1f}", there.empty() ? "M" : "L", px(s.x[i]), end_py(s.high[i], top_));
      back = fmt::format("L{:.1f} {:.1f}", px(s.x[i]), end_py(s.low[i], bottom_)) + back;
    }
    if (!there.empty()) {
      add("<path class=\"interval\" d=\"{}{}Z\" fill=\"{}\" fill-opacity=\"0.18\" stroke=\"none\"/>", there, back,
          colour);
    }
  }

  static std::string_view dash(std::size_t index) {
    const std::string_view dashes = kDashes[(index + index / std::size(kColours)) % std::size(kDashes)];
    return dashes.empty() ? "none" : dashes;
  }

  // Under the axis; returns the height of the drawing.
  double legend() {
    constexpr double kSample = 34, kGap = 14, kLeft = 10;
    double x = kLeft, y = below_ + kLine + 6;
    if (plot_.series.size() > 1 || (plot_.series.size() == 1 && !plot_.series[0].name.empty())) {
      for (std::size_t i = 0; i < plot_.series.size(); ++i) {
        const auto lines = wrapped(plot_.series[i].name, kSvgWidth - kLeft - kSample - 6, kSmall);
        double width = kSample;
        for (const std::string& line : lines) width = std::max(width, kSample + text_width(line) * kSmall);
        if (x > kLeft && x + width > kSvgWidth - 4) {
          x = kLeft;
          y += kLine + 2;
        }
        const std::string_view colour = kColours[i % std::size(kColours)];
        if (plot_.lines) {
          add("<path d=\"M{:.1f} {:.1f}h26\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\" "
              "stroke-dasharray=\"{}\"/>",
              x, y - 4, colour, dash(i));
        }
        add("{}", marker(i, x + 13, y - 4, colour));
        for (const std::string& line : lines) {
          add("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\">{}</text>", x + kSample, y, kSmall, escaped(line));
          if (&line != &lines.back()) y += kLine;
        }
        x += width + kGap;
      }
      y += kLine + 2;
    }
    if (left_out_ > 0) {
      for (const std::string& line :
           wrapped(fmt::format("{} points are not drawn: not finite, or not positive on a logarithmic axis", left_out_),
                   kSvgWidth - 2 * kLeft, kSmall)) {
        add("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\">{}</text>", kLeft, y, kSmall, escaped(line));
        y += kLine;
      }
    }
    return std::ceil(y - kLine + 10);
  }

  const Plot& plot_;
  Axis x_, y_;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0, below_ = 0;
  double inset_ = 0;  // of the drawing from both ends of the x axis: room for bars that stand aside
  std::size_t left_out_ = 0;
  std::string body_;
};

}  // namespace

std::string svg(const Plot& plot) { return Drawing(plot).text(); }

}  // namespace rmsnorm::lab
