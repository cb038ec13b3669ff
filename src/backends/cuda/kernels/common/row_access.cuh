// How the row kernels read and write: sixteen elements of a row at a time, in one of a few forms.
// One element at a time, of any type: row_store.cuh.
//
// Sixteen elements lie in 16 / kWidth<F> accesses of kWidth<F> elements, `step` elements apart:
// neighbouring threads read neighbouring 16 bytes, whatever the type.
#pragma once

#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/params/rows.h"

namespace octet::cuda {

inline constexpr int kChunk = kRowChunk;

// The dtype of an unquantized result that is not f32.
template <Form F>
inline constexpr Dtype kShort = F == Form::fp16 ? Dtype::fp16 : Dtype::bf16;

struct Matrix {
  const void* data = nullptr;
  const void* scales = nullptr;
  int64_t cols = 0;
  Dtype dtype = Dtype::bf16, scales_dtype = Dtype::bf16;
  int group = 0;
  int scale_step = 1;  // from a group's scale to the next: 0 where all have one
};
// A vector or a result of any shape in f32, bf16 or fp16; null where there is none.
struct Unquantized {
  void* data = nullptr;
  Dtype dtype = Dtype::bf16;
};

template <Form F>
inline constexpr int kWidth = F == Form::groups ? 16
                              : is_short(F)     ? 8
                                                : 4;
// Operands that go with codes are bf16.
template <Form F>
inline constexpr Form kUnquantized = F == Form::groups ? Form::bf16 : F;

// Sixteen elements as they are stored.
template <Form F>
struct Raw;
template <>
struct Raw<Form::f32> {
  float4 at[4];
};
template <>
struct Raw<Form::bf16> {
  uint4 at[2];
};
template <>
struct Raw<Form::fp16> {
  uint4 at[2];
};
template <>
struct Raw<Form::groups> {
  uint4 codes;
  uint16_t scale;
};

// Places of a thread's sixteen elements: access j begins at at + j * step, and happens where that
// is below `end`. W: elements of one access.
struct Place {
  int64_t at = 0;
  int64_t step = 0;
  int64_t end = 0;
};

// Place of a short operand beside codes: its eight-element accesses follow each other.
template <int W>
__device__ __forceinline__ int64_t access_at(const Place& p, int j, int width) {
  return W == width ? p.at + j * p.step : p.at + j * width;
}

// The form of the place is W's: the width that step was made for.
template <Form F, int W>
__device__ __forceinline__ Raw<F> load_raw(const void* data, const void* scales, const Place& p,
                                           int scale_step = 1) {
  Raw<F> raw = {};
  if constexpr (F == Form::groups) {
    if (p.at < p.end) {
      raw.codes = *reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(data) + p.at);
      raw.scale = static_cast<const uint16_t*>(scales)[p.at / kChunk * scale_step];
    }
  } else if constexpr (is_short(F)) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t at = access_at<W>(p, j, 8);
      if (at < p.end)
        raw.at[j] = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(data) + at);
    }
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t at = access_at<W>(p, j, 4);
      if (at < p.end)
        raw.at[j] = *reinterpret_cast<const float4*>(static_cast<const float*>(data) + at);
    }
  }
  return raw;
}

__device__ __forceinline__ void unpack_bf16(uint32_t pair, float* v) {
  v[0] = __uint_as_float(pair << 16);
  v[1] = __uint_as_float(pair & 0xFFFF0000u);
}
// A pair of bf16 or fp16.
template <Dtype D>
__device__ __forceinline__ void unpack_pair(uint32_t pair, float* v) {
  if constexpr (D == Dtype::bf16) {
    unpack_bf16(pair, v);
  } else {
    const float2 f = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    v[0] = f.x;
    v[1] = f.y;
  }
}
// Four codes as they are stored, in pairs of f16: exact. The conversion takes either half of a
// register, which a shift would not let it.
__device__ __forceinline__ void decode_e4m3(uint32_t codes, __half2 (&pairs)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  // A code's bits are, as f16, its value / 2^8; but for NaN, whose 480 no other code has.
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const uint32_t two = codes >> (16 * h);
    const uint32_t bits =
        (two & 0x80) << 8 | (two & 0x7F) << 7 | (two & 0x8000) << 16 | (two & 0x7F00) << 15;
    pairs[h] =
        __hmul2(*reinterpret_cast<const __half2*>(&bits), __half2half2(__float2half(256.0f)));
    if ((two & 0x7F) == 0x7F) pairs[h].x = __ushort_as_half(0x7FFF);
    if ((two & 0x7F00) == 0x7F00) pairs[h].y = __ushort_as_half(0x7FFF);
  }
#else
  uint32_t low, high;
  asm("{\n"
      ".reg .b16 l, h;\n"
      "mov.b32 {l, h}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, l;\n"
      "cvt.rn.f16x2.e4m3x2 %1, h;\n"
      "}"
      : "=r"(low), "=r"(high)
      : "r"(codes));
  pairs[0] = *reinterpret_cast<const __half2*>(&low);
  pairs[1] = *reinterpret_cast<const __half2*>(&high);
#endif
}
// Not scaled.
__device__ __forceinline__ void widen_e4m3(uint32_t codes, float* v) {
  __half2 pairs[2];
  decode_e4m3(codes, pairs);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float2 f = __half22float2(pairs[h]);
    v[2 * h] = f.x;
    v[2 * h + 1] = f.y;
  }
}
__device__ __forceinline__ void unpack_e4m3(uint32_t codes, float scale, float* v) {
  widen_e4m3(codes, v);
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] *= scale;
}

template <Form F>
__device__ __forceinline__ void unpack(const Raw<F>& raw, float (&v)[kChunk]) {
  if constexpr (F == Form::groups) {
    const float scale = to_float<Dtype::bf16>(raw.scale);
    const uint32_t words[4] = {raw.codes.x, raw.codes.y, raw.codes.z, raw.codes.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) unpack_e4m3(words[i], scale, v + 4 * i);
  } else if constexpr (is_short(F)) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint32_t words[4] = {raw.at[j].x, raw.at[j].y, raw.at[j].z, raw.at[j].w};
#pragma unroll
      for (int i = 0; i < 4; ++i) unpack_pair<kShort<F>>(words[i], v + 8 * j + 2 * i);
    }
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[4 * j] = raw.at[j].x;
      v[4 * j + 1] = raw.at[j].y;
      v[4 * j + 2] = raw.at[j].z;
      v[4 * j + 3] = raw.at[j].w;
    }
  }
}

}  // namespace octet::cuda
