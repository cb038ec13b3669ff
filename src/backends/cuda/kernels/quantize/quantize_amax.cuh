// Largest magnitudes as bits of f32: of a thread's values, of a block, of a launch.
#pragma once

#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/quantize/quantize.cuh"

namespace octet::cuda {

inline constexpr uint32_t kNotFinite = 0x80000000u;  // beside the bits of a magnitude

// The largest finite |x| as bits, and kNotFinite where another was met.
struct Magnitude {
  uint32_t top = 0, flag = 0;

  __device__ __forceinline__ void join(float x) {
    const uint32_t magnitude = __float_as_uint(x) & kF32Magnitude;
    const bool finite = magnitude < kF32Inf;
    top = max(top, finite ? magnitude : 0u);
    flag |= finite ? 0u : kNotFinite;
  }
  __device__ __forceinline__ void join_bits(uint32_t bits) {
    top = max(top, bits & kF32Magnitude);
    flag |= bits & kNotFinite;
  }
};

// The maximum and the flag of all threads, in thread 0.
__device__ __forceinline__ uint32_t join_block(Magnitude of) {
  __shared__ uint32_t tops[32], flags[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t top = __reduce_max_sync(~0u, of.top);
  uint32_t flag = __reduce_or_sync(~0u, of.flag);
  __syncthreads();  // all have read what a call before left
  if (lane == 0) {
    tops[warp] = top;
    flags[warp] = flag;
  }
  __syncthreads();
  if (warp != 0) return 0;
  const bool used = lane < static_cast<int>(blockDim.x) / 32;
  top = __reduce_max_sync(~0u, used ? tops[lane] : 0u);
  flag = __reduce_or_sync(~0u, used ? flags[lane] : 0u);
  return top | flag;
}

// The largest magnitude of N eights; Inf's bits or more where one of them is not finite.
template <Dtype X, int N>
__device__ __forceinline__ uint32_t magnitude_of(const Raw8 (&raw)[N], Dtype dtype) {
  uint32_t top = 0;
  if constexpr (X == Dtype::bf16) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(0.0f, 0.0f);
#pragma unroll
    for (int p = 0; p < N; ++p) {
      const uint32_t words[4] = {raw[p].part[0].x, raw[p].part[0].y, raw[p].part[0].z,
                                 raw[p].part[0].w};
#pragma unroll
      for (int k = 0; k < 4; ++k)
        pair = __hmax2_nan(pair, __habs2(*reinterpret_cast<const __nv_bfloat162*>(words + k)));
    }
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(&pair);
    top = max(bits << 16, bits & 0xFFFF0000u);
  } else {
#pragma unroll
    for (int p = 0; p < N; ++p) {
      float v[8];
      widen8(raw[p], dtype, v);
#pragma unroll
      for (int j = 0; j < 8; ++j) top = max(top, __float_as_uint(v[j]) & kF32Magnitude);
    }
  }
  return top;
}

// Joins all of `raw`; one by one only where something is not finite.
template <Dtype X, int N>
__device__ __forceinline__ void join_all(Magnitude& found, const Raw8 (&raw)[N]) {
  const uint32_t magnitude = magnitude_of<X>(raw, X);
  if (magnitude < kF32Inf) {
    found.top = max(found.top, magnitude);
    return;
  }
#pragma unroll
  for (int p = 0; p < N; ++p) {
    float v[8];
    widen8(raw[p], X, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) found.join(v[j]);
  }
}

}  // namespace octet::cuda
