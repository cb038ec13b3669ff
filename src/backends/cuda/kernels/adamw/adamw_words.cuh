// How the step's kernels read and write several elements of a lane in 8 or 16 bytes.
#pragma once

#include <cstdint>

namespace octet::cuda {

template <int N>
__device__ __forceinline__ void load_words(const void* from, int64_t byte, uint32_t* to) {
  const auto* at = static_cast<const char*>(from) + byte;
  if constexpr (N == 2) {
    const uint2 x = *reinterpret_cast<const uint2*>(at);
    to[0] = x.x, to[1] = x.y;
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const uint4 x = reinterpret_cast<const uint4*>(at)[i / 4];
      to[i] = x.x, to[i + 1] = x.y, to[i + 2] = x.z, to[i + 3] = x.w;
    }
  }
}
template <int N>
__device__ __forceinline__ void store_words(void* to, int64_t byte, const uint32_t* from) {
  auto* at = static_cast<char*>(to) + byte;
  if constexpr (N == 2) {
    *reinterpret_cast<uint2*>(at) = make_uint2(from[0], from[1]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      reinterpret_cast<uint4*>(at)[i / 4] =
          make_uint4(from[i], from[i + 1], from[i + 2], from[i + 3]);
    }
  }
}

// Element j of packed bf16.
__device__ __forceinline__ float bf16_at(const uint32_t* words, int j) {
  return __uint_as_float(j % 2 == 0 ? words[j / 2] << 16 : words[j / 2] & 0xFFFF0000u);
}
// Element j of a bf16 weight and its remainder as the f32 that they make.
__device__ __forceinline__ float joined_at(const uint32_t* weights, const uint32_t* rest, int j) {
  const uint32_t hi = __float_as_uint(bf16_at(weights, j));
  const auto both = static_cast<int32_t>(rest[j / 2]);
  const int32_t lo = j % 2 == 0 ? static_cast<int16_t>(both) : both >> 16;
  return __uint_as_float(hi + static_cast<uint32_t>(lo));
}

}  // namespace octet::cuda
