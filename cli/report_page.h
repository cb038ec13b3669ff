// The page of `octet report`: one HTML file that needs nothing else, with curves of all runs laid
// over each other, tables of results, and what differs between their configurations.
#pragma once

#include <string>
#include <vector>

#include "cli/report_data.h"

namespace octet {

// Points of a curve, each the mean of as many steps; sampled steps of a heat map: of more every so
// manieth is shown, the last always.
inline constexpr size_t kMaxCurvePoints = 1000, kMaxHeatSteps = 48;

// At least one run. The same text for the same runs. Its data, for cli/page.js:
//   runs: [{name, ..., curves: {METRIC: {x, y, low, high, gaps}}, heat: [{step, layer, edge,
//   ...}]}]
//     Six digits. y is null where no value of the point is finite; low and high, the least and the
//     largest, are there where points are means; gaps are steps of values that are not finite. Of
//     heat each is the edge of that layer (-1: outside the layers) and step that is_worse() than
//     all others.
//   evaluations: {columns, rows, runs: of each row}    differences: [{key, values: of each run}]
std::string report_page(const std::vector<RunData>& runs);

}  // namespace octet
