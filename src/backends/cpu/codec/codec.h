// Bulk encode and decode of spans of one format, on the calling thread, with the machine's vectors
// (Highway, chosen at run time) or without. Both give the bits of formats/codec.h: nearest rounding
// of the format, subnormals exact, NaN canonical. Any alignment; the spans must not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/codec.h"

namespace octet::cpu {

// encode: code[i] = encode(f32(x[i] * inv_scale))    decode: x[i] = f32(decode(code[i]) * scale)
// Null where the format does not fit the function: one-byte formats, which saturate, have the first
// four, two-byte formats, which keep overflow as Inf, the last two. DE8 has no vectors; E8M0 holds
// scales, not elements, and has none of these.
struct Codec {
  void (*encode_f32)(const float* x, size_t n, float inv_scale, uint8_t* codes) = nullptr;
  // x holds bf16 bits.
  void (*encode_bf16)(const uint16_t* x, size_t n, float inv_scale, uint8_t* codes) = nullptr;
  void (*decode_f32)(const uint8_t* codes, size_t n, float scale, float* x) = nullptr;
  // Unscaled, exact; of is_gemm_operand's formats alone.
  void (*decode_bf16)(const uint8_t* codes, size_t n, uint16_t* x) = nullptr;
  // Unscaled.
  void (*encode_16)(const float* x, size_t n, uint16_t* codes) = nullptr;
  void (*decode_16)(const uint16_t* codes, size_t n, float* x) = nullptr;
};

// The best target that the process allows now; without vectors.
Codec simd_codec(Dtype format);
Codec scalar_codec(Dtype format);

// The loops without vectors, which end those with them.
struct ScalarLoops {
  static float as_f32(float x) { return x; }
  static float as_f32(uint16_t bf16) { return f32_from_bf16(bf16); }

  template <Dtype D, typename T>
  static void encode_scaled(const T* x, size_t n, float inv_scale, uint8_t* codes) {
    for (size_t i = 0; i < n; ++i) {
      codes[i] = static_cast<uint8_t>(encode<D>(as_f32(x[i]) * inv_scale));
    }
  }
  template <Dtype D>
  static void decode_f32(const uint8_t* codes, size_t n, float scale, float* x) {
    for (size_t i = 0; i < n; ++i) x[i] = decode<D>(codes[i]) * scale;
  }
  template <Dtype D>
  static void decode_bf16(const uint8_t* codes, size_t n, uint16_t* x) {
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<uint16_t>(bits_of(decode<D>(codes[i])) >> 16);
  }
  template <Dtype D>
  static void encode_16(const float* x, size_t n, uint16_t* codes) {
    constexpr EncodeOptions kOptions{.saturate = false};
    for (size_t i = 0; i < n; ++i) {
      codes[i] = static_cast<uint16_t>(encode<D>(x[i], Rounding::near, kOptions));
    }
  }
  template <Dtype D>
  static void decode_16(const uint16_t* codes, size_t n, float* x) {
    for (size_t i = 0; i < n; ++i) x[i] = decode<D>(codes[i]);
  }
};

// Codec of loops with those names, which are templates of the format.
template <typename Loops>
Codec codec_of(Dtype format) {
  return visit_format(format, []<Dtype D>() -> Codec {
    if constexpr (dtype_bytes(D) == 2) {
      return {.encode_16 = Loops::template encode_16<D>, .decode_16 = Loops::template decode_16<D>};
    } else if constexpr (has_codec(D)) {
      Codec codec{.encode_f32 = Loops::template encode_scaled<D, float>,
                  .encode_bf16 = Loops::template encode_scaled<D, uint16_t>,
                  .decode_f32 = Loops::template decode_f32<D>};
      if constexpr (is_gemm_operand(D)) codec.decode_bf16 = Loops::template decode_bf16<D>;
      return codec;
    }
    return {};
  });
}

}  // namespace octet::cpu
