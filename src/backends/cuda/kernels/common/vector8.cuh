// Eight consecutive elements of f32, bf16 or fp16, known at run time: all loads first, conversions
// later, so that many loads are under way. A constant dtype costs nothing. Addresses of whole
// eights are multiples of 16 bytes.
#pragma once

#include "backends/cuda/kernels/common/element.cuh"

namespace octet::cuda {

// Eights in a row of one block of 256 threads.
inline constexpr int kThreads = 256;
inline constexpr int kEight = 8;

struct Raw8 {
  uint4 part[2];  // the second of f32 alone
};

__device__ __forceinline__ Raw8 load_raw8(const void* x, int64_t i, Dtype dtype) {
  Raw8 raw;
  if (dtype == Dtype::f32) {
    const auto* from = reinterpret_cast<const uint4*>(static_cast<const float*>(x) + i);
    raw.part[0] = from[0];
    raw.part[1] = from[1];
  } else {
    raw.part[0] = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(x) + i);
    raw.part[1] = uint4{};
  }
  return raw;
}

// Keeps the load above what follows.
__device__ __forceinline__ void pin(const Raw8& raw) {
  asm volatile("" ::"r"(raw.part[0].x), "r"(raw.part[1].x) : "memory");
}

__device__ __forceinline__ void store_raw8(void* y, int64_t i, Dtype dtype, const Raw8& raw) {
  if (dtype == Dtype::f32) {
    auto* to = reinterpret_cast<uint4*>(static_cast<float*>(y) + i);
    to[0] = raw.part[0];
    to[1] = raw.part[1];
  } else {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(y) + i) = raw.part[0];
  }
}

// Two elements of one word.
template <Dtype D>
__device__ __forceinline__ void widen2(uint32_t word, float& low, float& high) {
  if constexpr (D == Dtype::bf16) {
    low = __uint_as_float(word << 16);
    high = __uint_as_float(word & 0xFFFF0000u);
  } else {
    low = to_float<D>(static_cast<uint16_t>(word & 0xFFFFu));
    high = to_float<D>(static_cast<uint16_t>(word >> 16));
  }
}
template <Dtype D>
__device__ __forceinline__ uint32_t narrow2(float low, float high) {
  if constexpr (D == Dtype::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

__device__ __forceinline__ void widen8(const Raw8& raw, Dtype dtype, float (&v)[8]) {
  const uint32_t words[8] = {raw.part[0].x, raw.part[0].y, raw.part[0].z, raw.part[0].w,
                             raw.part[1].x, raw.part[1].y, raw.part[1].z, raw.part[1].w};
  if (dtype == Dtype::f32) {
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __uint_as_float(words[k]);
  } else if (dtype == Dtype::bf16) {
#pragma unroll
    for (int k = 0; k < 8; k += 2) widen2<Dtype::bf16>(words[k / 2], v[k], v[k + 1]);
  } else {
#pragma unroll
    for (int k = 0; k < 8; k += 2) widen2<Dtype::fp16>(words[k / 2], v[k], v[k + 1]);
  }
}

__device__ __forceinline__ Raw8 narrow8(const float (&v)[8], Dtype dtype) {
  uint32_t words[8] = {};
  if (dtype == Dtype::f32) {
#pragma unroll
    for (int k = 0; k < 8; ++k) words[k] = __float_as_uint(v[k]);
  } else if (dtype == Dtype::bf16) {
#pragma unroll
    for (int k = 0; k < 8; k += 2) words[k / 2] = narrow2<Dtype::bf16>(v[k], v[k + 1]);
  } else {
#pragma unroll
    for (int k = 0; k < 8; k += 2) words[k / 2] = narrow2<Dtype::fp16>(v[k], v[k + 1]);
  }
  return {{{words[0], words[1], words[2], words[3]}, {words[4], words[5], words[6], words[7]}}};
}

__device__ __forceinline__ float load_float(const void* x, int64_t i, Dtype dtype) {
  if (dtype == Dtype::f32) return static_cast<const float*>(x)[i];
  const uint16_t bits = static_cast<const uint16_t*>(x)[i];
  return dtype == Dtype::bf16 ? to_float<Dtype::bf16>(bits) : to_float<Dtype::fp16>(bits);
}

__device__ __forceinline__ void store_float(void* y, int64_t i, Dtype dtype, float v) {
  if (dtype == Dtype::f32) {
    static_cast<float*>(y)[i] = v;
  } else {
    static_cast<uint16_t*>(y)[i] =
        dtype == Dtype::bf16 ? from_float<Dtype::bf16>(v) : from_float<Dtype::fp16>(v);
  }
}

// Codes of eight values times a factor, the first in the lowest byte.
template <Dtype C>
__device__ __forceinline__ uint2 encode8(const float (&v)[8], float factor) {
  uint32_t words[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    float s[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) s[j] = v[4 * k + j] * factor;
    if constexpr (kConverts<C>) {
      const auto kind = C == Dtype::e4m3 ? __NV_E4M3 : __NV_E5M2;
      const uint32_t low = __nv_cvt_float2_to_fp8x2({s[0], s[1]}, __NV_SATFINITE, kind);
      const uint32_t high = __nv_cvt_float2_to_fp8x2({s[2], s[3]}, __NV_SATFINITE, kind);
      words[k] = low | high << 16;
    } else {
      words[k] = from_float<C>(s[0]) | uint32_t{from_float<C>(s[1])} << 8 |
                 uint32_t{from_float<C>(s[2])} << 16 | uint32_t{from_float<C>(s[3])} << 24;
    }
  }
  return {words[0], words[1]};
}

// Values of eight codes.
template <Dtype C>
__device__ __forceinline__ void decode8(uint2 codes, float (&v)[8]) {
#pragma unroll
  for (int k = 0; k < 8; ++k)
    v[k] = to_float<C>(static_cast<uint8_t>((k < 4 ? codes.x : codes.y) >> (8 * (k % 4))));
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, step));
  return v;
}

// Kernels are made for one type of all operands, or (real) for types known at run time.
__device__ __forceinline__ constexpr Dtype known(Dtype compiled, Dtype given) {
  return compiled == Dtype::real ? given : compiled;
}
template <typename F>
void visit_common(Dtype dtype, bool all_alike, F&& f) {
  if (!all_alike) return f.template operator()<Dtype::real>();
  visit_high_precision(dtype, f);
}

inline bool is_aligned(const void* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// The grid of n_blocks blocks.
inline unsigned grid_of(int64_t n_blocks) {
  if (n_blocks > 0x7FFFFFFF) throw ModuleError("[cuda] expected fewer than 2^31 blocks");
  return static_cast<unsigned>(n_blocks);
}

}  // namespace octet::cuda
