#include "cli/report_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "cli/curve.h"

namespace octet {
namespace {

// No ratio of two numbers on a logarithmic scale overflows.
constexpr double kSmallest = 1e-250;

struct ChartKind {
  std::string title, unit;
  // Of a step; nothing where it has no such value.
  std::optional<double> (*pick)(const StepReport& step);
  bool is_log = false, from_zero = false, in_bytes = false;
  bool has_dots = false;  // few points, each worth a dot
};

// A step without labels has none of the two.
std::optional<double> loss_of(const StepReport& step) {
  return step.has_labels() ? std::optional<double>(step.loss) : std::nullopt;
}
std::optional<double> norm_of(const StepReport& step) {
  return step.has_labels() ? std::optional<double>(step.grad_norm) : std::nullopt;
}

std::vector<ChartKind> chart_kinds() {
  using Value = std::optional<double>;
  return {{.title = "Training loss", .unit = "nats per token", .pick = loss_of},
          {.title = "Validation loss",
           .unit = "nats per token",
           .pick = [](const StepReport& s) { return Value(s.val_loss); },
           .has_dots = true},
          {.title = "Gradient norm",
           .unit = "before clipping, logarithmic",
           .pick = norm_of,
           .is_log = true},
          {.title = "Learning rate",
           .unit = "per step",
           .pick = [](const StepReport& s) { return Value(s.lr); },
           .from_zero = true},
          {.title = "Speed",
           .unit = "tokens per second",
           .pick = [](const StepReport& s) { return Value(s.tokens_per_s); },
           .from_zero = true},
          {.title = "Memory",
           .unit = "allocated by the plans",
           .pick = [](const StepReport& s) { return Value(static_cast<double>(s.mem_bytes)); },
           .from_zero = true,
           .in_bytes = true}};
}

double six_digits(double value) {
  if (std::abs(value) < kSmallest) return 0;  // no range is so narrow that it has no ticks
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

Curve curve_of(const RunData& run, const ChartKind& kind) {
  Curve curve;
  for (const StepReport& step : run.steps) {
    const std::optional<double> y = kind.pick(step);
    if (!y) continue;
    curve.x.push_back(static_cast<double>(step.step));
    curve.y.push_back(*y);
  }
  return curve;
}

// A value that can be drawn.
bool is_shown(double value, bool is_log) {
  return std::isfinite(value) && (!is_log || value > 0);
}

// `least`: what a logarithmic scale shows of a band that reaches down to zero.
OrderedJson curve_json(const ThinCurve& thin, bool is_log, double least) {
  OrderedJson x = OrderedJson::array(), y = x, low = x, high = x, gaps = x;
  bool has_band = false;
  const auto number = [&](double value) {
    return OrderedJson(six_digits(is_log ? std::max(value, least) : value));
  };
  for (const CurvePoint& point : thin.points) {
    const bool is_point = is_shown(point.mean, is_log);
    x.push_back(std::llround(point.x));
    y.push_back(is_point ? number(point.mean) : OrderedJson());
    low.push_back(is_point ? number(point.low) : OrderedJson());
    high.push_back(is_point ? number(point.high) : OrderedJson());
    has_band |= is_point && point.low != point.high;
  }
  for (const double gap : thin.gaps) gaps.push_back(std::llround(gap));
  OrderedJson json = {{"x", x}, {"y", y}};
  if (has_band) json.update({{"low", low}, {"high", high}});
  json["gaps"] = gaps;
  return json;
}

ReportChart chart_of(const ChartKind& kind, const std::vector<RunData>& runs) {
  std::vector<ThinCurve> curves;
  ReportChart chart{.title = kind.title, .unit = kind.unit, .json = {}};
  double least = std::numeric_limits<double>::infinity();
  for (const RunData& run : runs) {
    curves.push_back(thin_curve(curve_of(run, kind), kMaxCurvePoints));
    for (const CurvePoint& point : curves.back().points) {
      if (is_shown(point.mean, kind.is_log)) chart.is_empty = false;
      const double positive = point.low > 0 ? point.low : point.mean;
      if (positive > 0) least = std::min(least, std::max(positive, kSmallest));
    }
  }
  OrderedJson json = OrderedJson::array();
  for (const ThinCurve& curve : curves) json.push_back(curve_json(curve, kind.is_log, least));
  chart.json = {{"log", kind.is_log},
                {"zero", kind.from_zero},
                {"bytes", kind.in_bytes},
                {"dots", kind.has_dots},
                {"curves", std::move(json)}};
  return chart;
}

}  // namespace

std::vector<ReportChart> report_charts(const std::vector<RunData>& runs) {
  std::vector<ReportChart> charts;
  for (const ChartKind& kind : chart_kinds()) charts.push_back(chart_of(kind, runs));
  return charts;
}

std::string script_json(const OrderedJson& json) {
  std::string out;
  for (const char ch : json.dump(-1, ' ', true, OrderedJson::error_handler_t::replace)) {
    // In JSON these stand in strings alone, where an escape means the same.
    if (ch == '<' || ch == '>' || ch == '&') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(ch));
    } else {
      out += ch;
    }
  }
  return out;
}

}  // namespace octet
