// A line chart as SVG text, of the figures of studies: series over anything, with axes; title,
// legend and colours are the figure's, the colours by the classes run-0, run-1, ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/curve.h"

namespace octet {

enum class YScale : uint8_t { linear, logarithmic };

struct ChartOptions {
  YScale scale = YScale::linear;
  bool has_dots = false;  // few points, each worth a dot
  bool from_zero = false;
  std::string x_title = "step";
  std::vector<std::string> x_names = {};  // where x counts them: 0, 1, ...
};

// The drawing's own units; the figure scales it.
inline constexpr double kChartWidth = 560;
double chart_height(const ChartOptions& options);

// What is between the tags of an SVG; an empty text where no curve has a finite value. Long curves
// are drawn as the mean of each run of steps that falls on one column, in front of a band from the
// least to the largest. Values that are not finite leave a gap, and a mark at the top.
std::string chart_body(const std::vector<Curve>& curves, const ChartOptions& options);

}  // namespace octet
