// The products' algorithms as a run records them: read from the context, and given back to it.
#pragma once

#include "backends/cuda/launch/context.h"
#include "backends/cuda/module_api.h"

namespace octet::cuda {

// The algorithm of one problem among those of context.gemm_algorithms, by index in the map's order.
OctetCudaAlgorithm recorded_algorithm(const Context& context, int32_t index);

// Products prepared from now on take it where the problem is theirs.
void cache_algorithm(Context& context, const OctetCudaAlgorithm& algorithm);

}  // namespace octet::cuda
