// The bulk codecs of one format as function pointers, and their scalar loops: the fallback, and the
// ragged ends of the vector loops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/codec.h"

namespace octet::cpu {

// Null where the format does not fit the function: one-byte formats have the first four, two-byte
// formats the last two.
struct Codec {
  void (*encode_f32)(const float* x, size_t n, float inv_scale, uint8_t* codes) = nullptr;
  void (*encode_bf16)(const uint16_t* x, size_t n, float inv_scale, uint8_t* codes) = nullptr;
  void (*decode_f32)(const uint8_t* codes, size_t n, float scale, float* x) = nullptr;
  void (*decode_bf16)(const uint8_t* codes, size_t n, uint16_t* x) = nullptr;
  void (*encode_16)(const float* x, size_t n, uint16_t* codes) = nullptr;
  void (*decode_16)(const uint16_t* codes, size_t n, float* x) = nullptr;
};

// The best target that the process allows now; without vectors.
Codec simd_codec(Dtype format);
Codec scalar_codec(Dtype format);

namespace scalar {

template <Dtype D>
inline void encode_f32(const float* x, size_t n, float inv_scale, uint8_t* codes) {
  for (size_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(encode<D>(x[i] * inv_scale));
}
template <Dtype D>
inline void encode_bf16(const uint16_t* x, size_t n, float inv_scale, uint8_t* codes) {
  for (size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint8_t>(encode<D>(f32_from_bf16(x[i]) * inv_scale));
  }
}
template <Dtype D>
inline void decode_f32(const uint8_t* codes, size_t n, float scale, float* x) {
  for (size_t i = 0; i < n; ++i) x[i] = decode<D>(codes[i]) * scale;
}
template <Dtype D>
inline void decode_bf16(const uint8_t* codes, size_t n, uint16_t* x) {
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<uint16_t>(bits_of(decode<D>(codes[i])) >> 16);
}
template <Dtype D>
inline void encode_16(const float* x, size_t n, uint16_t* codes) {
  constexpr EncodeOptions kOptions{.saturate = false};
  for (size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<uint16_t>(encode<D>(x[i], Rounding::near, kOptions));
  }
}
template <Dtype D>
inline void decode_16(const uint16_t* codes, size_t n, float* x) {
  for (size_t i = 0; i < n; ++i) x[i] = decode<D>(codes[i]);
}

}  // namespace scalar
}  // namespace octet::cpu
