// Tiles on their way to shared memory, while the block computes from others. Rows of a tile are 16
// bytes longer than D: eight rows lie in all banks.
#pragma once

#include "backends/cuda/kernels/attention/attention_tiles.cuh"
#include "backends/cuda/kernels/common/async_copy.cuh"

namespace octet::cuda {

template <int D>
inline constexpr int kRowLength = D + 8;

// All of the block's copies are there, and what it computed from before is done.
__device__ __forceinline__ void wait_for_tiles() {
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
}

// Rows [first, first + kRows) of a head by kThreads threads; zeros beyond its rows and columns.
template <int D, int kRows, int kThreads>
__device__ __forceinline__ void fetch_rows(const AttentionParams& p, const void* x,
                                           const Head& head, int64_t first, uint16_t* tile) {
  constexpr int kPacks = D / 8;
  const auto* from = static_cast<const uint16_t*>(x) + head.first;
#pragma unroll
  for (int i = 0; i < kRows * kPacks / kThreads; ++i) {
    const int pack = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = pack / kPacks, column = pack % kPacks * 8;
    const bool there = first + row < head.rows && column < p.head_dim;
    fetch_16_bytes(tile + row * kRowLength<D> + column,
                   there ? from + (first + row) * head.stride + column : from, there);
  }
}

}  // namespace octet::cuda
