// Values of a Logical graph that are f32 under every recipe, by value: numbers of a loss, whose
// sums over rows and tokens the 8 bits of BF16's mantissa do not hold.
//   - statistics (OpRow::statistics, InputKind::statistic), a recurrence's states beside a KV
//     cache, and what a `cast` of the forward pass makes, which has no other meaning before types
//     are assigned; its gradient is back in the recipe's type;
//   - what follows from these alone, constants and inputs of the batch being allowed beside them;
//   - powers of two (power_of_two), of which factors of scales are made;
//   - constants and inputs of the batch that are read by such nodes, or as a rescale's factor,
//   alone, as the gradient of each
//     row's loss, or a graph output that no node reads.
// What reads an activation or a parameter has the recipe's type. Numbers without axes, which are
// f32 anyway, count as constants.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace octet {

ById<bool> f32_values(const Graph& logical);

}  // namespace octet
