// Tiles on their way to shared memory, while the block computes from others. Rows of a tile are 16
// bytes longer than D: eight rows lie in all banks.
#pragma once

#include "backends/cuda/kernels/attention/attention_tiles.cuh"

namespace octet::cuda {

template <int D>
inline constexpr int kRowLength = D + 8;

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Copies to shared memory that go on while the block computes; zeros where it is not `there`.
__device__ __forceinline__ void fetch_16_bytes(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void fetch_4_bytes(void* to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 4 : 0)
               : "memory");
}
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
