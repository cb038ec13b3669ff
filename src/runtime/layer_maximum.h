// The largest value that a layer with a quantizer in it rounds: the wide result is never stored.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace octet {

// f32 of `n` stored values of one of the formats.
std::vector<float> values_of(Dtype dtype, std::span<const std::byte> bytes);

// max |y| of a norm's or an activation's result before it is quantized, from the node's operands,
// which `read` gives as they lie in memory; in f64, a serial walk of every element. Values that are
// not finite are left out. Nothing of any other op.
std::optional<double> layer_maximum(const Graph& graph, const Node& node,
                                    const std::function<std::vector<std::byte>(ValueId)>& read);

}  // namespace octet
