// The curves of the page that `octet report` writes, as data for its script (cli/report.js).
#pragma once

#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "cli/report_data.h"

namespace octet {

struct ReportChart {
  std::string title;  // "Training loss"
  std::string unit;   // "nats per token"
  // {"log", "zero", "bytes", "dots", "curves": [one a run: {"x", "y", "low", "high", "gaps"}]}. Of
  // each run at most kMaxCurvePoints points, each the mean of as many steps; `low` and `high` are
  // there where the values of a point differ. `y` is null where there is none to draw; `gaps` are
  // steps that are not finite. Six digits.
  OrderedJson json;
  bool is_empty = true;  // no curve has a value that can be drawn
};

inline constexpr size_t kMaxCurvePoints = 1000;

// Losses, gradient norm, learning rate, speed and memory.
std::vector<ReportChart> report_charts(const std::vector<RunData>& runs);

// JSON that may stand in a <script> element: ASCII, and nothing of it ends the element or begins a
// comment. What is not UTF-8 becomes U+FFFD.
std::string script_json(const OrderedJson& json);

}  // namespace octet
