// The largest value that a layer with a quantizer in it rounds: the unquantized result is never
// stored.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ir/graph.h"

namespace octet {

// The bytes of a value as they lie in memory, until the next call.
using ValueReader = std::function<std::span<const std::byte>(ValueId)>;

// max |y| of a norm's or an activation's result before it is quantized, from the node's operands:
// by math/row_layers.h, an activation in f32 and a norm in f64, the same for any number of threads.
// Values that are not finite are left out. Nothing of any other op.
std::optional<double> layer_maximum(const Graph& graph, const Node& node, const ValueReader& read,
                                    ThreadPool& pool);

}  // namespace octet
