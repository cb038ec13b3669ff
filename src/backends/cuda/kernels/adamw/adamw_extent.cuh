// The extent of the moments of a group that eight lanes hold, sixteen elements each.
#pragma once

#include "formats/bits.h"

namespace octet::cuda {

inline constexpr int kEach = 16;  // elements a lane
inline constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

// Bit patterns of magnitudes; amin of zeros alone is 0 or Inf. Patterns order as values do, and the
// machine compares three of them at once.
struct Extent {
  uint32_t amax, amin;
};

// N is odd.
template <int N>
__device__ __forceinline__ Extent extent_of(const uint32_t (&most)[N], const uint32_t (&least)[N]) {
  Extent e{most[0], least[0]};
#pragma unroll
  for (int j = 1; j < N; j += 2) {
    e.amax = __vimax3_u32(e.amax, most[j], most[j + 1]);
    e.amin = __vimin3_u32(e.amin, least[j], least[j + 1]);
  }
  return e;
}
// What counts for amin: without zeros, any magnitude but them.
template <bool kZerosCount>
__device__ __forceinline__ uint32_t for_least(uint32_t magnitude) {
  return kZerosCount || magnitude != 0 ? magnitude : kF32Inf;
}

// Of one lane's m. Only two of a comparison may be signed: pairs first.
template <bool kZerosCount>
__device__ __forceinline__ Extent lane_extent_m(const float (&m)[kEach]) {
  constexpr int kPairs = kEach / 2;
  uint32_t most[kPairs + 1], least[kPairs + 1];
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const float a = fabsf(m[2 * j]), b = fabsf(m[2 * j + 1]);
    most[j] = __float_as_uint(fmaxf(a, b));
    least[j] = kZerosCount ? __float_as_uint(fminf(a, b))
                           : min(for_least<false>(__float_as_uint(a)),
                                 for_least<false>(__float_as_uint(b)));
  }
  most[kPairs] = most[0], least[kPairs] = least[0];
  return extent_of(most, least);
}
template <bool kZerosCount>
__device__ __forceinline__ Extent lane_extent_v(const float (&v)[kEach]) {
  uint32_t most[kEach + 1], least[kEach + 1];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    most[j] = __float_as_uint(v[j]);
    least[j] = for_least<kZerosCount>(most[j]);
  }
  most[kEach] = most[0], least[kEach] = least[0];
  return extent_of(most, least);
}

// Over the eight lanes: those with bit 2 clear get that of m, the others that of v, which is not
// negative.
template <bool kZerosCount>
__device__ __forceinline__ Extent group_extent(const float (&m)[kEach], const float (&v)[kEach],
                                               bool second) {
  const Extent of_m = lane_extent_m<kZerosCount>(m), of_v = lane_extent_v<kZerosCount>(v);
  const Extent sent = second ? of_m : of_v;
  Extent kept = second ? of_v : of_m;
  kept.amax = max(kept.amax, __shfl_xor_sync(kWholeWarp, sent.amax, 4));
  kept.amin = min(kept.amin, __shfl_xor_sync(kWholeWarp, sent.amin, 4));
#pragma unroll
  for (int step = 2; step > 0; step /= 2) {
    kept.amax = max(kept.amax, __shfl_xor_sync(kWholeWarp, kept.amax, step));
    kept.amin = min(kept.amin, __shfl_xor_sync(kWholeWarp, kept.amin, step));
  }
  return kept;
}

}  // namespace octet::cuda
