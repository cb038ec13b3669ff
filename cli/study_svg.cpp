#include "cli/study_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "cli/markup.h"

namespace octet {
namespace {

// Okabe and Ito's, the yellow replaced: it is hard to see on white; and two dark ones.
constexpr std::array kColors = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00",
                                "#56B4E9", "#000000", "#8C8C8C", "#6B3D12", "#5B2A86"};
constexpr std::array kDashes = {"none", "7 3", "2 3", "9 3 2 3"};
constexpr double kWidth = 560, kMargin = 14, kLegendRow = 20, kLegendColumn = 180;
constexpr double kLeft = 64, kRight = kWidth - 12, kTop = 60, kFloor = 310;  // of the plot
constexpr double kNumbers = 36, kNames = 110;                                // below it
constexpr size_t kMaxNames = 28, kLongestName = 16, kMaxDots = 150;
// Larger magnitudes are drawn as this one, smaller ones than its inverse as 0, so that no range
// overflows; a range that is narrower, as a share of its numbers, has no room for ticks that
// differ.
constexpr double kMaxDrawn = 1e250, kNarrowest = 1e-6;
constexpr const char* kStyle =
    "text{font:11px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#475467}"
    ".title{font-size:15px;font-weight:600;fill:#1c2330}.unit,.key{font-size:12px}"
    ".key{fill:#1c2330}.grid{stroke:#e4e7ec}.axis{stroke:#98a2b3}"
    ".curve{fill:none;stroke-width:1.8;stroke-linejoin:round}circle,.gap{stroke:none}";
constexpr const char* kEnd = "text-anchor=\"end\"";

// Axis of the plot: values from low to high lie between begin and end in the drawing.
struct Axis {
  double begin = 0, end = 0;
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // By a share of the range, or by more where it has no room for ticks that differ.
  void widen(double share) {
    if (low > high) low = high = 0;
    const double largest = std::max(std::abs(low), std::abs(high));
    double room = share * (high - low);
    if (high - low <= kNarrowest * largest) room = largest > 0 ? largest / 10 : 1;
    low -= room, high += room;
  }
  double at(double value) const { return begin + (value - low) / (high - low) * (end - begin); }
};

// About n, by steps of 1, 2 or 5 times a power of ten.
std::vector<double> linear_ticks(const Axis& axis, int n) {
  const double rough = (axis.high - axis.low) / n;
  const double power = std::pow(10, std::floor(std::log10(rough))), ratio = rough / power;
  const double step = power * (ratio < 1.5 ? 1 : ratio < 3.5 ? 2 : ratio < 7.5 ? 5 : 10);
  std::vector<double> ticks;
  for (double i = std::ceil(axis.low / step - 1e-9); i * step <= axis.high + step * 1e-9; ++i)
    ticks.push_back(i * step + 0.0);  // no -0
  return ticks;
}

// Ticks of an axis of powers of ten: 1, 2 and 5 times them, or of many the powers alone.
std::vector<double> log_ticks(const Axis& axis) {
  const double width = axis.high - axis.low, stride = 1 + std::floor(width / 8);
  std::vector<double> ticks;
  for (double decade = std::floor(axis.low); decade <= axis.high; decade += stride) {
    for (const double digit : {1, 2, 5}) {
      const double tick = decade + std::log10(digit);
      const bool is_shown = digit == 1 || width <= 3;
      if (is_shown && tick >= axis.low && tick <= axis.high) ticks.push_back(tick);
    }
  }
  return ticks.size() > 1 ? ticks : linear_ticks(axis, 5);
}

std::string line(double x1, double y1, double x2, double y2, const std::string& attributes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1,
                     x2, y2, attributes);
}

std::string text(double x, double y, const std::string& attributes, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                     markup_text(words));
}

class Plot {
 public:
  explicit Plot(const Figure& figure) : figure_(figure) {
    for (const Series& series : figure.series) {
      for (size_t i = 0; i < series.x.size(); ++i) {
        x_.add(series.x[i]);
        if (const double y = height_of(series.y[i]); std::isfinite(y)) y_.add(y);
      }
    }
    if (figure.from_zero) y_.add(0);
    const double lowest = y_.low;
    x_.widen(0);
    y_.widen(0.06);
    if (figure.from_zero) y_.low = lowest;
  }

  std::string axes() const {
    std::string out;
    for (const double tick : is_log() ? log_ticks(y_) : linear_ticks(y_, 5)) {
      const double y = y_.at(tick);
      out +=
          line(kLeft, y, kRight, y, "class=\"grid\"") +
          text(kLeft - 7, y + 3.5, kEnd,
               is_log() ? fmt::format("{:.4g}", std::pow(10, tick)) : fmt::format("{:.9g}", tick));
    }
    out += line(kLeft, kFloor, kRight, kFloor, "class=\"axis\"");
    return out + x_axis();
  }

  // A new stroke after each gap; a dot for a point alone, and for names of x: they have no order.
  std::string curve(const Series& series) const {
    const auto is_drawn = [&](size_t i) {
      return i < series.y.size() && std::isfinite(height_of(series.y[i]));
    };
    const bool has_dots = figure_.has_dots && series.x.size() <= kMaxDots;
    const bool has_strokes = figure_.x_names.empty() || !has_dots;
    std::string stroke, marks;
    double last_gap = 0;
    for (size_t i = 0; i < series.x.size(); ++i) {
      const double x = x_.at(series.x[i]);
      if (is_drawn(i)) {
        const double y = y_.at(height_of(series.y[i]));
        if (has_strokes)
          stroke += fmt::format("{}{:.1f} {:.1f}", is_drawn(i - 1) ? 'L' : 'M', x, y);
        if (has_dots || (!is_drawn(i - 1) && !is_drawn(i + 1)))
          marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\"/>", x, y);
      } else if (x - last_gap >= 3) {  // a run of them is one mark after another
        last_gap = x;
        marks += fmt::format(
            "<path class=\"gap\" d=\"M{:.1f} {}l3 -6h-6z\"><title>not finite</title></path>", x,
            kTop);
      }
    }
    return fmt::format("<path class=\"curve\" d=\"{}\"/>{}", stroke, marks);
  }

 private:
  bool is_log() const { return figure_.scale == FigureScale::logarithmic; }

  // On the axis of y; NaN where there is nothing to draw.
  double height_of(double y) const {
    if (!std::isfinite(y) || (is_log() && y <= 0)) return NAN;
    if (is_log()) return std::log10(std::clamp(y, 1 / kMaxDrawn, kMaxDrawn));
    return std::abs(y) < 1 / kMaxDrawn ? 0 : std::clamp(y, -kMaxDrawn, kMaxDrawn);
  }

  static std::string notch(double x, const std::string& attributes, const std::string& words) {
    return line(x, kFloor, x, kFloor + 4, "class=\"axis\"") +
           text(x, kFloor + 15, attributes, words);
  }

  std::string x_axis() const {
    std::string out;
    const std::vector<std::string>& names = figure_.x_names;
    if (names.empty()) {
      for (const double tick : linear_ticks(x_, 6))
        out += notch(x_.at(tick), "text-anchor=\"middle\"", fmt::format("{:.9g}", tick));
    }
    for (size_t i = 0; i < names.size(); i += (names.size() + kMaxNames - 1) / kMaxNames) {
      const double x = x_.at(static_cast<double>(i));
      const size_t n = names[i].size();
      out += notch(x, fmt::format("{} transform=\"rotate(-38 {:.1f} {})\"", kEnd, x, kFloor + 13),
                   n > kLongestName ? "\u2026" + names[i].substr(n - kLongestName) : names[i]);
    }
    return out;
  }

  const Figure& figure_;
  Axis x_{kLeft, kRight}, y_{kFloor, kTop};
};

}  // namespace

std::string figure_svg(const Figure& figure) {
  constexpr auto kColumns = static_cast<size_t>((kWidth - kMargin) / kLegendColumn);
  const size_t n = figure.series.size(), n_rows = (n + kColumns - 1) / kColumns;
  const double below = kFloor + (figure.x_names.empty() ? kNumbers : kNames);
  const double legend = below + kMargin;
  const double height = legend + kMargin + kLegendRow * static_cast<double>(n_rows);
  const Plot plot(figure);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" aria-label=\"{2} over {3}\">\n<style>{4}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      kWidth, height, markup_text(figure.title), markup_text(figure.x_title), kStyle);
  const bool is_log = figure.scale == FigureScale::logarithmic;
  out += text(kMargin, 22, "class=\"title\"", figure.title) +
         text(kMargin, 41, "class=\"unit\"", figure.y_title + (is_log ? ", logarithmic" : "")) +
         plot.axes() + text(kRight, below - 5, kEnd, figure.x_title);
  for (size_t i = 0; i < n; ++i) {
    const size_t row = i / kColumns, column = i % kColumns;
    const double x = kMargin + kLegendColumn * static_cast<double>(column);
    const double y = legend + kLegendRow * static_cast<double>(row);
    const char* color = kColors[i % kColors.size()];
    out += fmt::format("<g stroke=\"{0}\" fill=\"{0}\" stroke-dasharray=\"{1}\">{2}{3}</g>\n{4}",
                       color, kDashes[(i + i / kColors.size()) % kDashes.size()],
                       plot.curve(figure.series[i]), line(x, y, x + 26, y, "stroke-width=\"2.4\""),
                       text(x + 33, y + 4, "class=\"key\"", figure.series[i].name));
  }
  return out + "</svg>\n";
}

}  // namespace octet
