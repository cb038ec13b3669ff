// Launches of the gated delta rule's kernels: their tiles' sizes, and their shared memory.
#pragma once

#include "backends/cuda/kernels/attention/delta_tiles.cuh"

namespace octet::cuda {

// Calls f.template operator()<keys>() for the key columns of the tiles.
template <typename F>
void visit_delta_keys(const GatedDeltaParams& p, F&& f) {
  const int keys = delta_keys(p.key_dim);
  if (keys == 64) return f.template operator()<64>();
  keys == 128 ? f.template operator()<128>() : f.template operator()<256>();
}

template <typename Kernel>
void allow_delta_shared(Kernel* kernel, size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "the gated delta rule's shared memory");
}

}  // namespace octet::cuda
