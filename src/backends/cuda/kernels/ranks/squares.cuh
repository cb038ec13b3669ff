// The sum of a tensor's squares, of 256 elements in double and those without rounding
// (math/exact_sum.h): by kernels that read the tensor, and by the one that makes it.
#pragma once

#include "backends/cuda/kernels/ranks/eight.cuh"
#include "ir/sharding.h"
#include "math/exact_sum.h"

namespace octet::cuda {

inline constexpr int kLimbs = kExactLimbs;
inline constexpr int kSquareThreads = 256;
static_assert((kLimbs + 1) * sizeof(int64_t) == kSquareWords * sizeof(uint32_t));

// A lane's part of a sum: limb `lane`, or of the lane behind the limbs' how many sums are not
// finite.
using Limb = unsigned long long;

// A warp adds the squares of 256 elements, each lane eight neighbours, in a fixed order; then lane
// i adds what the sum has in limb i.
template <Dtype G>
__device__ __forceinline__ void add_squares(const Eight<G>& values, int lane, Limb& limb) {
  static_assert(kLimbs < 32);
  double sum = 0;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const double x = static_cast<double>(to_float<G>(values.at[j]));
    sum += x * x;
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
  if (!isfinite(sum)) {
    limb += lane == kLimbs ? 1 : 0;
  } else if (sum > 0) {
    const ExactParts parts = exact_parts(sum);
#pragma unroll
    for (int i = 0; i < 3; ++i)
      limb += lane == parts.limb + i ? static_cast<Limb>(parts.bits[i]) : 0;
  }
}

// The sum of a block's warps, as row blockIdx.x. All threads call it.
__device__ __forceinline__ void store_squares(Limb limb, int64_t* rows) {
  constexpr int kWarps = kSquareThreads / 32;
  __shared__ Limb limbs[kWarps][32];
  const int thread = static_cast<int>(threadIdx.x);
  limbs[thread / 32][thread % 32] = limb;
  __syncthreads();
  if (thread > kLimbs) return;
  Limb sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += limbs[warp][thread];
  rows[static_cast<int64_t>(blockIdx.x) * (kLimbs + 1) + thread] = static_cast<int64_t>(sum);
}

// Some tensors of one type, as many as kernel parameters hold; `end`: blocks of 256 elements of
// this one and those before it, or rows of sums.
struct Gradients {
  static constexpr int kMost = 128;
  const void* at[kMost];
  int64_t n[kMost], end[kMost];
  int count = 0;
};

// Which tensor the block is of, from `tensor` on, and which of its blocks it is.
__device__ __forceinline__ int64_t find_tensor(const Gradients& g, int64_t block, int& tensor) {
  while (block >= g.end[tensor]) ++tensor;
  return block - (tensor == 0 ? 0 : g.end[tensor - 1]);
}
__device__ __forceinline__ void add_limb(Limb limb, int lane, int64_t* limbs) {
  if (lane <= kLimbs && limb != 0) atomicAdd(reinterpret_cast<Limb*>(limbs) + lane, limb);
}

template <Dtype G>
__global__ void __launch_bounds__(kSquareThreads)
    square_sums(const __grid_constant__ Gradients g, int64_t* limbs) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * (kSquareThreads / 32);
  int64_t block = static_cast<int64_t>(blockIdx.x) * (kSquareThreads / 32) + threadIdx.x / 32;
  int tensor = 0;
  Limb limb = 0;
  for (; block < g.end[g.count - 1]; block += n_warps) {
    const int64_t first = find_tensor(g, block, tensor) * 256 + lane * 8;
    add_squares(Eight<G>::load(static_cast<const Storage<G>*>(g.at[tensor]), first, g.n[tensor]),
                lane, limb);
  }
  add_limb(limb, lane, limbs);
}

// Of rows that store_squares has made, a warp a row.
__global__ void __launch_bounds__(kSquareThreads)
    sum_of_rows(const __grid_constant__ Gradients g, int64_t* limbs) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * (kSquareThreads / 32);
  int64_t row = static_cast<int64_t>(blockIdx.x) * (kSquareThreads / 32) + threadIdx.x / 32;
  int tensor = 0;
  Limb limb = 0;
  for (; row < g.end[g.count - 1]; row += n_warps) {
    const int64_t at = find_tensor(g, row, tensor) * (kLimbs + 1) + lane;
    if (lane <= kLimbs) limb += static_cast<const Limb*>(g.at[tensor])[at];
  }
  add_limb(limb, lane, limbs);
}

__global__ void clear_sum(int64_t* limbs) {
  if (threadIdx.x <= kLimbs) limbs[threadIdx.x] = 0;
}

}  // namespace octet::cuda
