// A line chart as SVG text: several runs over the training step, or series over anything, with axes
// and units; the legend is elsewhere. Colours are the page's, by the classes run-0, run-1, ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octet {

// Values by rising step. Those that are not finite leave a gap, and a mark at the top of the chart.
struct Curve {
  int color = 0;  // of the run
  std::vector<double> x, y;
};

enum class YScale : uint8_t { linear, logarithmic };
enum class YUnit : uint8_t { plain, bytes };

struct ChartOptions {
  std::string title;  // "Training loss"
  std::string unit;   // "nats per token"
  YScale scale = YScale::linear;
  YUnit y_unit = YUnit::plain;
  bool has_dots = false;  // few points, each worth a dot
  bool from_zero = false;
  std::string x_title = "step";
  std::vector<std::string> x_names = {};  // where x counts them: 0, 1, ...
};

// The drawing's own units; the page scales it.
inline constexpr double kChartWidth = 560;
double chart_height(const ChartOptions& options);

// What is between the tags of chart_svg.
std::string chart_body(const std::vector<Curve>& curves, const ChartOptions& options);

// An empty text where no curve has a finite value. Long curves are drawn as the mean of each run of
// steps that falls on one column, in front of a band from the least to the largest.
std::string chart_svg(const std::vector<Curve>& curves, const ChartOptions& options);

// "<" and the like as entities, for text and attributes. What is not UTF-8 becomes U+FFFD; control
// characters become blanks.
std::string html_text(std::string_view text);

// "3.2109", "1.2e-04", "8.1k"; "not finite"
std::string short_number(double value);

}  // namespace octet
