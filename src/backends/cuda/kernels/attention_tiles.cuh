// Where attention's blocks work, and what its kernels share.
#pragma once

#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/kernels/element.cuh"

namespace octet::cuda {

// One head of one sequence: element (t, c) at first + t * stride + c.
struct Head {
  int64_t first, stride;
};
__device__ __forceinline__ Head head_of(const AttentionParams& p, int64_t heads, int64_t b,
                                        int64_t h) {
  return {b * p.seq * heads * p.head_dim + h * p.head_dim, heads * p.head_dim};
}

// A head of a sequence, and the first row of the block's tile.
struct Place {
  int64_t b, h, first;
};
// last_first: the tiles that a causal mask leaves most work start first.
__device__ __forceinline__ Place place_of(int64_t heads, int64_t n_tiles, int tile_rows,
                                          bool last_first) {
  const int64_t i = blockIdx.x;
  const int64_t tile = i / heads % n_tiles;
  return {i / (heads * n_tiles), i % heads, (last_first ? n_tiles - 1 - tile : tile) * tile_rows};
}

template <typename Kernel>
void allow_shared(Kernel* kernel, size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "attention's shared memory");
}

}  // namespace octet::cuda
