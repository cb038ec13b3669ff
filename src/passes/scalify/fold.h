// Rescales that cost nothing: a GEMM whose result is only rescaled, by a power of two, gives the
// rescaled result itself; the factor joins its scale_a. The same bits where no product leaves f32's
// range.
#pragma once

#include "ir/graph.h"

namespace octet {

Graph fold_rescales(const Graph& graph);

}  // namespace octet
