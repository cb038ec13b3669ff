// Rescales that a program spends on scales.
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph.h"

namespace octet {

// Nodes that rescale values in memory, by where their factor comes from: a norm that is measured
// for it in the step; other values of run time, as the factors that measured scales leave where
// they meet; a constant. folded: rescales that a GEMM's accumulator or a sum has taken, which read
// and write nothing.
struct RescaleCounts {
  int64_t measured = 0, at_run_time = 0, constant = 0, folded = 0;
  bool operator==(const RescaleCounts&) const = default;
};

RescaleCounts count_rescales(const Graph& graph);

// "rescales: 17 measured, ..."; nothing where a program has none.
std::string rescales_text(const RescaleCounts& counts);

}  // namespace octet
