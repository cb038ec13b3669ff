// Eights of quantizers: read from anywhere, encoded with any rounding, and written to anywhere.
#pragma once

#include "backends/cuda/kernels/common/vector8.cuh"
#include "base/philox.h"

namespace octet::cuda {

// The first n of eight elements, at any place, and zeros behind them; none where n is not positive.
static __device__ __noinline__ Raw8 load_some(const void* x, int64_t i, int64_t n, Dtype dtype) {
  uint32_t words[8] = {};
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    if (j >= n) continue;
    if (dtype == Dtype::f32) {
      words[j] = static_cast<const uint32_t*>(x)[i + j];
    } else {
      words[j / 2] |= uint32_t{static_cast<const uint16_t*>(x)[i + j]} << (16 * (j % 2));
    }
  }
  return {{{words[0], words[1], words[2], words[3]}, {words[4], words[5], words[6], words[7]}}};
}

// Elements [i, i + n), at most eight. aligned: eight lie at an address of load_raw8.
struct Eight {
  int64_t i, n;
  bool aligned;
};
__device__ __forceinline__ Raw8 load_eight(const void* x, Dtype dtype, const Eight& at) {
  const bool whole = at.aligned && at.n >= kEight;
  return whole ? load_raw8(x, at.i, dtype) : load_some(x, at.i, at.n, dtype);
}
__device__ __forceinline__ void store_eight(void* y, Dtype dtype, const Eight& at,
                                            const float (&v)[8]) {
  if (at.aligned && at.n >= kEight) return store_raw8(y, at.i, dtype, narrow8(v, dtype));
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    if (j < at.n) store_float(y, at.i + j, dtype, v[j]);
  }
}
__device__ __forceinline__ void store_codes(uint8_t* to, uint2 codes, int64_t n, bool aligned) {
  if (aligned && n >= kEight) {
    *reinterpret_cast<uint2*>(to) = codes;
    return;
  }
#pragma unroll
  for (int j = 0; j < kEight; ++j) {
    const uint32_t word = j < 4 ? codes.x : codes.y;
    if (j < n) to[j] = static_cast<uint8_t>(word >> (8 * (j % 4)));
  }
}

// Elements whose random words stochastic rounding draws: of a quantizer, from `first` on.
struct Draws {
  RandomStream stream;
  int64_t first = 0;
};

// Codes of any format and rounding, the first in the lowest byte: one after another, since the
// code of an encoder is long. draws: of rounding sr, which none else reads.
template <Dtype C>
__device__ __forceinline__ uint2 encode_rounded8(const float (&v)[8], Rounding rounding,
                                                 Dtype source, const Draws& draws = {}) {
  uint64_t codes = 0;
#pragma unroll 1
  for (int j = 0; j < kEight; ++j) {
    EncodeOptions options{.source = source};
    if (rounding == Rounding::sr) {
      options.random_bits = draws.stream.bits(static_cast<uint64_t>(draws.first + j));
    }
    const auto code = static_cast<uint8_t>(encode<C>(v[j], rounding, options));
    codes |= uint64_t{code} << (8 * j);
  }
  return {static_cast<uint32_t>(codes), static_cast<uint32_t>(codes >> 32)};
}

__device__ __forceinline__ float finite_magnitude(float x) {
  const float magnitude = fabsf(x);
  return magnitude < __uint_as_float(kF32Inf) ? magnitude : 0.0f;  // NaN compares false
}

// n / d, without a division where that is 0.
template <typename T>
__device__ __forceinline__ T quotient(T n, T d) {
  return n < d ? 0 : n / d;
}

}  // namespace octet::cuda
