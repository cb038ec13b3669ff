#include "cli/study_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/html_text.h"

namespace octet {
namespace {

constexpr double kWidth = kChartWidth;
constexpr double kLeft = 64, kRight = 12, kTop = 14, kPlot = 250;
constexpr double kBottom = 36, kNamesBottom = 110;  // below the plot: numbers, or slanted names
constexpr size_t kMaxNames = 28, kLongestName = 16;
constexpr size_t kMaxPoints = 150;  // drawn points of a curve, at most: more hide each other

// On a logarithmic scale smaller numbers are drawn as this: no ratio of two of them overflows.
constexpr double kMinLogarithmic = 1e-250;
// A range that is narrower, as a share of its numbers, has no room for ticks that differ.
constexpr double kNarrowest = 1e-6;

struct AxisRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
  double width() const { return high - low; }
  double largest() const { return std::max(std::abs(low), std::abs(high)); }
};

struct Tick {
  double at = 0;
  std::string text;
};

// What the numbers of an axis are counted in: "k".
struct Unit {
  double size = 1;
  std::string_view name = "";
};

Unit unit_of(double largest) {
  if (largest >= 1e9) return {1e9, "G"};
  if (largest >= 1e6) return {1e6, "M"};
  if (largest >= 1e4) return {1e3, "k"};
  return {};
}

std::string tick_text(double value, double step, const Unit& unit) {
  if (value == 0) return "0";
  const int digits = static_cast<int>(-std::floor(std::log10(step) + 1e-9));
  if (digits <= 5) return fmt::format("{:.{}f}{}", value, std::max(0, digits), unit.name);
  const auto after_first = static_cast<int>(std::log10(std::abs(value) / step) + 1e-9);
  return fmt::format("{:.{}e}{}", value, std::clamp(after_first, 1, 9), unit.name);
}

// Steps of 1, 2 or 5 times a power of ten, about n of them, all with as many digits.
std::vector<Tick> linear_ticks(const AxisRange& range, int n) {
  const Unit unit = unit_of(range.largest());
  const double low = range.low / unit.size, high = range.high / unit.size;
  const double rough = (high - low) / n;
  if (!std::isnormal(rough))  // too small a range for steps: its ends
    return {{range.low, short_number(range.low)}, {range.high, short_number(range.high)}};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double ratio = rough / power;
  const double step = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
  const double first = std::ceil(low / step - 1e-9);
  std::vector<Tick> ticks;
  for (int i = 0; i <= 2 * n; ++i) {
    const double value = (first + i) * step;
    if (value > high + step * 1e-9) break;
    ticks.push_back({value * unit.size, tick_text(value, step, unit)});
  }
  return ticks;
}

std::vector<Tick> log_ticks(const AxisRange& range) {
  constexpr int kMaxDecades = 8;
  std::vector<Tick> ticks;
  const auto first = static_cast<int>(std::floor(std::log10(range.low)));
  const auto last = static_cast<int>(std::floor(std::log10(range.high)));
  const bool is_wide = std::log10(range.high) - std::log10(range.low) > 3;
  const int stride = 1 + (last - first) / kMaxDecades;
  for (int decade = first; decade <= last; decade += stride) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double tick = digit * std::pow(10.0, decade);
      if (is_wide && digit > 1) break;
      if (tick >= range.low * 0.999 && tick <= range.high * 1.001)
        ticks.push_back({tick, short_number(tick)});
    }
  }
  return ticks;
}

class Chart {
 public:
  Chart(const std::vector<Curve>& curves, const ChartOptions& options) : options_(options) {
    for (const Curve& curve : curves) {
      drawn_.push_back(thin_curve(curve, kMaxPoints));
      for (const double x : curve.x) x_.add(x);
      for (const CurvePoint& point : drawn_.back().points) {
        if (std::isnan(point.mean) || (is_log() && point.low <= 0)) continue;
        y_.add(is_log() ? std::max(point.low, kMinLogarithmic) : point.low);
        y_.add(is_log() ? std::max(point.high, kMinLogarithmic) : point.high);
      }
    }
    if (!y_.is_empty()) widen();
  }

  bool is_empty() const { return y_.is_empty(); }

  std::string body() const {
    std::string out = axes();
    for (size_t i = 0; i < drawn_.size(); ++i) out += curve(i);
    return out;
  }

 private:
  bool is_log() const { return options_.scale == YScale::logarithmic; }

  void widen() {
    const double least_x = std::max(1.0, 1e-12 * x_.largest());
    if (x_.width() < least_x) x_ = {x_.low - least_x, x_.high + least_x};
    if (is_log()) {
      const double room = std::max(std::exp(0.05 * (std::log(y_.high) - std::log(y_.low))), 1.05);
      y_ = {y_.low / room, y_.high * room};
      return;
    }
    if (options_.from_zero) y_.low = std::min(y_.low, 0.0);
    double room = 0.06 * y_.width();
    if (y_.width() <= kNarrowest * y_.largest()) room = y_.high == 0 ? 1 : y_.largest() * 0.1;
    y_.high += room;
    if (!options_.from_zero) y_.low -= room;
  }

  double at_x(double x) const {
    const double share = std::clamp((x - x_.low) / x_.width(), 0.0, 1.0);
    return kLeft + share * (kWidth - kLeft - kRight);
  }
  double at_y(double y) const {
    const double share =
        y <= y_.low ? 0.0
        : is_log()  ? (std::log(y) - std::log(y_.low)) / (std::log(y_.high) - std::log(y_.low))
                    : (y - y_.low) / y_.width();
    return kTop + kPlot * (1 - std::clamp(share, 0.0, 1.0));
  }

  std::string axes() const {
    std::string out;
    for (const Tick& tick : is_log() ? log_ticks(y_) : linear_ticks(y_, 5)) {
      out += fmt::format(
          "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
          "<text class=\"tick\" x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
          kLeft, kWidth - kRight, at_y(tick.at), kLeft - 7, at_y(tick.at) + 3.5, tick.text);
    }
    constexpr double kFloor = kTop + kPlot;
    out += options_.x_names.empty() ? x_numbers() : x_names();
    return out + fmt::format(
                     "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>"
                     "<text class=\"tick\" x=\"{1}\" y=\"{3}\" text-anchor=\"end\">{4}</text>\n",
                     kLeft, kWidth - kRight, kFloor, chart_height(options_) - 5,
                     html_text(options_.x_title));
  }

  static std::string notch(double x) {
    constexpr double kFloor = kTop + kPlot;
    return fmt::format(
        "<line class=\"notch\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>", x, kFloor,
        kFloor + 4);
  }

  std::string x_numbers() const {
    std::string out;
    for (const Tick& tick : linear_ticks(x_, 6)) {
      out += notch(at_x(tick.at)) +
             fmt::format(
                 "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                 at_x(tick.at), kTop + kPlot + 17, tick.text);
    }
    return out;
  }

  // As many as there is room for, slanted.
  std::string x_names() const {
    std::string out;
    const size_t n = options_.x_names.size(), stride = (n + kMaxNames - 1) / kMaxNames;
    for (size_t i = 0; i < n; i += stride) {
      const double x = at_x(static_cast<double>(i)), y = kTop + kPlot + 13;
      const std::string& name = options_.x_names[i];
      const bool is_long = name.size() > kLongestName;
      out += notch(x) + fmt::format(
                            "<text class=\"tick\" x=\"{0:.1f}\" y=\"{1}\" text-anchor=\"end\" "
                            "transform=\"rotate(-38 {0:.1f} {1})\">{2}{3}</text>\n",
                            x, y, is_long ? "\u2026" : "",
                            html_text(is_long ? name.substr(name.size() - kLongestName) : name));
    }
    return out;
  }

  // A band only where it is wider than the line.
  std::string band(const ThinCurve& drawn, size_t begin, size_t end) const {
    std::string there, back;
    double widest = 0;
    for (size_t i = begin; i < end; ++i) {
      const CurvePoint& p = drawn.points[i];
      there += fmt::format("{:.1f},{:.1f} ", at_x(p.x), at_y(p.high));
      back = fmt::format("{:.1f},{:.1f} ", at_x(p.x), at_y(p.low)) + back;
      widest = std::max(widest, at_y(p.low) - at_y(p.high));
    }
    if (widest < 2) return "";
    return fmt::format("<polygon class=\"band\" points=\"{}{}\"/>", there, back);
  }

  std::string line(const ThinCurve& drawn, size_t begin, size_t end) const {
    std::string points, dots;
    for (size_t i = begin; i < end; ++i) {
      const CurvePoint& p = drawn.points[i];
      points += fmt::format("{:.1f},{:.1f} ", at_x(p.x), at_y(p.mean));
      if (options_.has_dots || end - begin == 1)
        dots +=
            fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\"/>", at_x(p.x), at_y(p.mean));
    }
    return fmt::format("<polyline points=\"{}\"/>{}", points, dots);
  }

  std::string curve(size_t index) const {
    const ThinCurve& drawn = drawn_[index];
    std::string out = fmt::format("<g class=\"run run-{0} of-{0}\">", index);
    for (size_t begin = 0; begin < drawn.points.size();) {
      size_t end = begin;
      while (end < drawn.points.size() && !std::isnan(drawn.points[end].mean)) ++end;
      if (end > begin) out += band(drawn, begin, end) + line(drawn, begin, end);
      begin = end + 1;
    }
    double last = -kWidth;
    for (const double x : drawn.gaps) {
      if (at_x(x) - last < 3) continue;  // a run of them is one mark after another
      last = at_x(x);
      out += fmt::format(
          "<path class=\"gap\" d=\"M{:.1f} {}l3 -6h-6z\"><title>not finite</title></path>", last,
          kTop);
    }
    return out + "</g>\n";
  }

  const ChartOptions& options_;
  std::vector<ThinCurve> drawn_;
  AxisRange x_, y_;
};

}  // namespace

double chart_height(const ChartOptions& options) {
  return kTop + kPlot + (options.x_names.empty() ? kBottom : kNamesBottom);
}

std::string chart_body(const std::vector<Curve>& curves, const ChartOptions& options) {
  const Chart chart(curves, options);
  return chart.is_empty() ? "" : chart.body();
}

}  // namespace octet
