// Curves of many steps, thinned for a drawing.
#pragma once

#include <cstddef>
#include <vector>

namespace octet {

// Values by rising step; those that are not finite are gaps.
struct Curve {
  std::vector<double> x, y;
};

// The steps of one column of the drawing: means, and the least and the largest value. NaN: none of
// them is finite.
struct CurvePoint {
  double x = 0, mean = 0, low = 0, high = 0;
};

struct ThinCurve {
  std::vector<CurvePoint> points;  // at most so many
  std::vector<double> gaps;        // x of the first value of a column that is not finite
};

// Each column holds as many steps. Magnitudes beyond 1e250 become that, so that no range overflows.
ThinCurve thin_curve(const Curve& curve, size_t most_points);

}  // namespace octet
