// How kernels read and write elements of every type, one at a time or sixteen bytes at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "backends/cuda/launch/kernel.h"
#include "formats/bits.h"
#include "formats/decode.h"
#include "formats/dtype.h"
#include "formats/encode.h"

namespace octet::cuda {

template <Dtype D>
using Storage = std::conditional_t<D == Dtype::f32, float,
                                   std::conditional_t<dtype_bytes(D) == 2, uint16_t, uint8_t>>;

// Stored bits to f32, exactly.
template <Dtype D>
__device__ __forceinline__ float to_float(Storage<D> x) {
  if constexpr (D == Dtype::f32) {
    return x;
  } else if constexpr (D == Dtype::bf16) {
    return __uint_as_float(static_cast<uint32_t>(x) << 16);
  } else if constexpr (D == Dtype::fp16) {
    return __half2float(__ushort_as_half(x));
  } else if constexpr (D == Dtype::e4m3 || D == Dtype::e5m2) {
    const auto kind = D == Dtype::e4m3 ? __NV_E4M3 : __NV_E5M2;
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(x, kind)));
  } else {
    return decode<D>(x);
  }
}

// Formats with a conversion of the machine's own.
template <Dtype D>
constexpr bool kConverts = is_fp8(D);

// HiF8, nearest and saturating: formats/encode_hif8.h's bits for every f32. Rounding to w fraction
// bits, ties away from zero, adds half a unit to the pattern of |x|; w follows from |x|'s exponent.
// What is left below the unit is less than half of it, so that the fraction may be cut at the width
// of the rounded exponent, one wider at most. Below 2^-22 stand 2^-22 and 0; from 2^15 on
// everything is the largest value.
OCTET_HOST_DEVICE constexpr uint32_t hif8_nearest(float x) {
  const uint32_t bits = bits_of(x);
  const uint32_t magnitude = bits & kF32Magnitude;
  const uint32_t sign = (bits >> 24) & 0x80u;
  if (magnitude >= 0x47000000u) return magnitude > kF32Inf ? 0x80u : sign | 0x6Eu;
  if (magnitude < 0x34800000u) return magnitude < 0x34000000u ? 0u : sign | 0x01u;
  const int of = static_cast<int>(magnitude >> 23) - 127;
  const int before = of < 0 ? -of : of;
  const int width = 3 - (before >= 4) - (before >= 8) - (before >= 16);
  const uint32_t rounded = magnitude + (0x00400000u >> width);
  const int exponent = static_cast<int>(rounded >> 23) - 127;
  if (exponent < -15) return sign | static_cast<uint32_t>(exponent + 23);
  const int size = exponent < 0 ? -exponent : exponent;
  const int fraction_bits = 3 - (size >= 4) - (size >= 8);
  const uint32_t fraction = (rounded & 0x007FFFFFu) >> (23 - fraction_bits);
  if (size == 0) return sign | 0x08u | fraction;
  // The prefix stands above the exponent's sign, the bits of |exponent| behind its leading 1, and
  // the fraction.
  const int hidden = (size >= 2) + (size >= 4) + (size >= 8);
  const uint32_t prefix = hidden == 0 ? 0x10u : 0x20u * static_cast<uint32_t>(hidden);
  const uint32_t negative = exponent < 0 ? 1u << (hidden + fraction_bits) : 0u;
  const uint32_t rest = static_cast<uint32_t>(size - (1 << hidden)) << fraction_bits;
  return sign | prefix | negative | rest | fraction;
}

// f32 to stored bits: to nearest, ties to even for f32's shorter kin; codes saturate, as
// formats/encode.h does by default (NaN stays NaN, Inf becomes the largest finite code).
template <Dtype D>
__device__ __forceinline__ Storage<D> from_float(float x) {
  if constexpr (D == Dtype::f32) {
    return x;
  } else if constexpr (D == Dtype::bf16) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
  } else if constexpr (D == Dtype::fp16) {
    return __half_as_ushort(__float2half_rn(x));
  } else if constexpr (kConverts<D>) {
    const auto kind = D == Dtype::e4m3 ? __NV_E4M3 : __NV_E5M2;
    return static_cast<Storage<D>>(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, kind));
  } else if constexpr (D == Dtype::hif8) {
    return static_cast<Storage<D>>(hif8_nearest(x));
  } else {
    return static_cast<Storage<D>>(encode<D>(x));
  }
}

// A value above the limit becomes NaN, where there is one (QuantizeAttrs::limit).
__device__ __forceinline__ float limited(float scaled, float limit) {
  return limit == 0 || fabsf(scaled) <= limit ? scaled : __int_as_float(0x7FFFFFFF);
}

// N elements in one access; the address is a multiple of the size.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};
template <int N, typename T>
__device__ __forceinline__ Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, typename T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// Calls f.template operator()<D>() for one of f32, bf16, fp16; throws ModuleError for another.
template <typename F>
auto visit_high_precision(Dtype dtype, F&& f) {
  switch (dtype) {
    case Dtype::f32:
      return f.template operator()<Dtype::f32>();
    case Dtype::bf16:
      return f.template operator()<Dtype::bf16>();
    case Dtype::fp16:
      return f.template operator()<Dtype::fp16>();
    default:
      throw ModuleError("[cuda] expected f32, bf16 or fp16, got " + std::string(dtype_name(dtype)));
  }
}
// The first row of the table of formats, from `row` on, whose dtype `Takes` takes.
template <bool (*Takes)(Dtype)>
constexpr int next_format(int row) {
  while (row < kFormatCount && !Takes(kFormats[row].dtype)) ++row;
  return row;
}
template <bool (*Takes)(Dtype), int From>
inline constexpr int kNextFormat = next_format<Takes>(From);
// Calls f.template operator()<D>() for the format with this dtype; one that is not among those that
// `Takes` takes passes for the last of them.
template <bool (*Takes)(Dtype), int First = 0, typename F>
__device__ __forceinline__ auto visit_quantized(Dtype dtype, F&& f) {
  constexpr int kRow = kNextFormat<Takes, First>, kNext = kNextFormat<Takes, kRow + 1>;
  if constexpr (kNext < kFormatCount) {
    if (dtype != kFormats[kRow].dtype) return visit_quantized<Takes, kNext>(dtype, f);
  }
  return f.template operator()<kFormats[kRow].dtype>();
}
// The same on the host for quantized data that products take; throws ModuleError for another.
template <int First = 0, typename F>
auto visit_codes(Dtype dtype, F&& f) {
  constexpr int kRow = kNextFormat<is_gemm_operand, First>;
  if constexpr (kRow < kFormatCount) {
    if (dtype != kFormats[kRow].dtype) return visit_codes<kRow + 1>(dtype, f);
    return f.template operator()<kFormats[kRow].dtype>();
  } else {
    throw ModuleError("[cuda] expected quantized data, got " + std::string(dtype_name(dtype)));
  }
}

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// True if this block is the last of `n_blocks` to come here; thread 0 knows. They count themselves
// in a word that is 0 again then (launch/context.h).
__device__ __forceinline__ bool count_block(unsigned int* n_ended, unsigned int n_blocks) {
  __threadfence();
  const bool last = atomicInc(n_ended, n_blocks - 1) == n_blocks - 1;
  if (last) __threadfence();
  return last;
}

}  // namespace octet::cuda
