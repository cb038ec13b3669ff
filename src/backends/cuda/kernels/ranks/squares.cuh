// The sum of a tensor's squares, of 256 elements in double and those without rounding
// (math/exact_sum.h): by kernels that read the tensor, and by the one that makes it.
#pragma once

#include <type_traits>

#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/kernels/ranks/collective.cuh"
#include "ir/sharding.h"
#include "math/exact_sum.h"

namespace octet::cuda {

// Eight neighbours of a tensor whose first `there` elements exist; zeros behind them.
template <Dtype D>
struct Eight {
  using Word = std::conditional_t<sizeof(Storage<D>) == 1, uint2, uint4>;
  static constexpr int kWords = 8 * sizeof(Storage<D>) / sizeof(Word);
  alignas(Word) Storage<D> at[8];

  __device__ static Eight load_whole(const Storage<D>* x, int64_t i) {
    Eight result;
#pragma unroll
    for (int k = 0; k < kWords; ++k)
      reinterpret_cast<Word*>(result.at)[k] = reinterpret_cast<const Word*>(x + i)[k];
    return result;
  }
  __device__ static Eight load(const Storage<D>* x, int64_t i, int64_t there) {
    if (i + 8 <= there) return load_whole(x, i);
    Eight result = {};
    for (int j = 0; j < 8 && i + j < there; ++j) result.at[j] = x[i + j];
    return result;
  }
  __device__ void store(Storage<D>* y, int64_t i, int64_t count) const {
    if (i + 8 <= count) {
#pragma unroll
      for (int k = 0; k < kWords; ++k)
        reinterpret_cast<Word*>(y + i)[k] = reinterpret_cast<const Word*>(at)[k];
    } else {
      for (int j = 0; j < 8 && i + j < count; ++j) y[i + j] = at[j];
    }
  }
};

inline constexpr int kLimbs = kExactLimbs;
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
  constexpr int kWarps = kRankThreads / 32;
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

}  // namespace octet::cuda
