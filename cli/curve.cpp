#include "cli/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octet {
namespace {

constexpr double kLargest = 1e250;
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

}  // namespace

ThinCurve thin_curve(const Curve& curve, size_t most_points) {
  ThinCurve thin;
  const size_t per_point = (curve.x.size() + most_points - 1) / most_points;
  for (size_t begin = 0; begin < curve.x.size(); begin += per_point) {
    const size_t end = std::min(begin + per_point, curve.x.size());
    CurvePoint point{.low = kLargest, .high = -kLargest};
    double n = 0;
    bool has_gap = false;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(curve.y[i])) {
        if (!has_gap) thin.gaps.push_back(curve.x[i]);
        has_gap = true;
        continue;
      }
      const double y = std::clamp(curve.y[i], -kLargest, kLargest);
      point.low = std::min(point.low, y);
      point.high = std::max(point.high, y);
      ++n;
      point.mean += (y - point.mean) / n;
      point.x += (curve.x[i] - point.x) / n;
    }
    thin.points.push_back(n > 0 ? point
                                : CurvePoint{curve.x[begin], kNoNumber, kNoNumber, kNoNumber});
  }
  return thin;
}

}  // namespace octet
