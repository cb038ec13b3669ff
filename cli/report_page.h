// The page of `octet report`: one HTML file that needs nothing else, with curves of all runs laid
// over each other, tables of results, and what differs between their configurations.
#pragma once

#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "cli/common.h"
#include "cli/report_data.h"

namespace octet {

// Sampled steps of a heat map: of more every so manieth is shown, the last always.
inline constexpr size_t kMaxHeatSteps = 48;
// Size of the page of some runs; what the rest leaves of it is for samples.
inline constexpr size_t kMaxPageBytes = 300'000;

// At least one run. The same for the same runs. The data of cli/report.js:
//   runs: [{name, label, recipe, seed, ..., axes: {step, tokens, seconds},
//     curves: {METRIC: {x, y, low, high, gaps}}, heat: [{step, layer, edge, ...}]}]
//     x are steps, left out where they are axes.step; axes has their tokens and the seconds that
//     steps took. y is null where no value of the point is finite, and one number where all are
//     the same; low and high, the least and the largest, are there where points are means; gaps
//     are steps of values that are not finite. Of heat each is the edge of that layer (-1: outside
//     the layers) and step that is_worse() than all others.
//   figures: what evaluations tell beside the loss, ["accuracy", ...], left out where nothing; a
//     run's curves have them as val_NAME, and its figures: {NAME: last value}
//   groups: [{label, runs: indices}] that differ in their seeds alone    baseline: one of them
//   samples: as samples_json() has them, of the last steps where a page would exceed kMaxPageBytes
//   evaluations: {columns, rows, runs: of each row}    differences: [{key, values: of each run}]
OrderedJson report_json(const std::vector<RunData>& runs);

// The results, a row a run. With --json for programs: plain numbers, and no value where it is not
// finite.
Table report_table(const GlobalOptions& options, const std::vector<RunData>& runs);

// The page of it; `results` is the table of a reader without JavaScript.
std::string report_page(const std::vector<RunData>& runs, const Table& results);

}  // namespace octet
