// Telemetry's samples as a heat map, layers by steps.
#pragma once

#include <string>
#include <vector>

#include "train/edge_telemetry.h"

namespace octet {

// An SVG text. A cell is the edge of that layer (-1: outside the layers) and step that is farthest
// outside its format's window: how many powers of two bring it back to the middle, its colour;
// where none is outside, the largest share that was lost. Empty where there is no sample. Of more
// than kMaxHeatSteps steps every so manieth is shown, the last always.
std::string heat_map(const std::vector<EdgeSample>& samples);

inline constexpr size_t kMaxHeatSteps = 48;

}  // namespace octet
