// Launches of the gated delta rule's kernels: their tiles' sizes.
#pragma once

#include "backends/cuda/kernels/attention/delta_tiles.cuh"
#include "backends/cuda/kernels/common/shared_memory.h"

namespace octet::cuda {

// Calls f.template operator()<keys>() for the key columns of the tiles.
template <typename F>
void visit_delta_keys(const GatedDeltaParams& p, F&& f) {
  const int keys = delta_keys(p.key_dim);
  if (keys == 64) return f.template operator()<64>();
  keys == 128 ? f.template operator()<128>() : f.template operator()<256>();
}

}  // namespace octet::cuda
