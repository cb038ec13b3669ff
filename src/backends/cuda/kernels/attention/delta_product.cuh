// Products of f32 tiles in shared memory by a block of eight warps, on tensor cores: each factor is
// the sum of two of TF32, x = high + low, and of their four products the one of the low parts is
// left out, 2^-22 of the whole. m16n8k8: lane l holds, of a result of 8 columns, rows l / 4 and
// l / 4 + 8, columns l % 4 * 2 and the next. Places along the sum are taken two at a time: lane
// l % 4 has 2 (l % 4) and the next of each eight, in both factors.
#pragma once

#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/params/gated_delta.h"

namespace octet::cuda {

inline constexpr int kDeltaWarps = 8, kDeltaThreads = kDeltaWarps * 32;

// Element i of a factor's rows (columns, of the second factor) at place k of the sum. Along: a row
// of the tile is one i; across: one k. k is even.
template <int kStride>
struct Along {
  const float* x;
  __device__ __forceinline__ float2 pair(int i, int k) const {
    return *reinterpret_cast<const float2*>(x + i * kStride + k);
  }
};
template <int kStride>
struct Across {
  const float* x;
  __device__ __forceinline__ float2 pair(int i, int k) const {
    return {x[k * kStride + i], x[(k + 1) * kStride + i]};
  }
};
// Each row of the tile times its factor.
template <int kStride>
struct AcrossTimes {
  const float *x, *factors;
  __device__ __forceinline__ float2 pair(int i, int k) const {
    const float2 by = *reinterpret_cast<const float2*>(factors + k);
    return {x[k * kStride + i] * by.x, x[(k + 1) * kStride + i] * by.y};
  }
};

struct Tf32Parts {
  uint32_t high, low;
};
// High is x to the nearest of 11 bits; of low the tensor cores read 11. Of NaN and Inf low is NaN,
// whatever the rounding makes of the bits of a NaN.
__device__ __forceinline__ Tf32Parts tf32_parts(float x) {
  const uint32_t high = (__float_as_uint(x) + 0x1000u) & 0xFFFFE000u;
  return {high, __float_as_uint(x - __uint_as_float(high))};
}

__device__ __forceinline__ void multiply_tf32(float (&c)[4], const uint32_t (&a)[4],
                                              const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The block's result of M x N; a warp has kRows x kCols of it.
template <int M, int N>
struct DeltaProduct {
  static constexpr int kColWarps = N < 64 ? (M == 256 ? 1 : 2) : (M == 64 ? 4 : 2);
  static constexpr int kRowWarps = kDeltaWarps / kColWarps;
  static constexpr int kRows = M / kRowWarps, kCols = N / kColWarps;
  static constexpr int kM = kRows / 16, kN = kCols / 8;
  static_assert(kM * 16 * kRowWarps == M && kN * 8 * kColWarps == N);
  float x[kM][kN][4] = {};

  static __device__ __forceinline__ int warp_row() {
    return static_cast<int>(threadIdx.x / 32) / kColWarps;
  }
  static __device__ __forceinline__ int warp_column() {
    return static_cast<int>(threadIdx.x / 32) % kColWarps;
  }
  static __device__ __forceinline__ int first_row() { return warp_row() * kRows; }
  static __device__ __forceinline__ int end_row() { return first_row() + kRows; }
  static __device__ __forceinline__ int row(int m, int half) {
    return first_row() + m * 16 + half * 8 + static_cast<int>(threadIdx.x % 32) / 4;
  }
  static __device__ __forceinline__ int column(int n) {
    return warp_column() * kCols + n * 8 + static_cast<int>(threadIdx.x % 4) * 2;
  }

  // Adds a b over the places [begin, end) of the sum, multiples of 8. The next eight are read while
  // these are multiplied.
  template <typename A, typename B>
  __device__ __forceinline__ void add(const A& a, const B& b, int begin, int end) {
    Factors next;
    next.read(a, b, begin);
#pragma unroll 1
    for (int k = begin; k < end; k += 8) {
      const Factors now = next;
      if (k + 8 < end) next.read(a, b, k + 8);
      multiply(now);
    }
  }

  // Calls f(row, column, x of it, x of the next column).
  template <typename F>
  __device__ __forceinline__ void each(F&& f) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int n = 0; n < kN; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          f(row(m, half), column(n), x[m][n][2 * half], x[m][n][2 * half + 1]);
      }
    }
  }
  __device__ __forceinline__ void put(float* tile, int stride) {
    each([&](int r, int c, float a, float b) {
      *reinterpret_cast<float2*>(tile + r * stride + c) = {a, b};
    });
  }

  // Adds to sums[warp_column() * M + r] the row's elements times those of the tile.
  template <int kStride>
  __device__ __forceinline__ void add_row_sums(const float* tile, float* sums, float sign) {
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row(m, half);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kN; ++n) {
          const float2 by = *reinterpret_cast<const float2*>(tile + r * kStride + column(n));
          sum = __fmaf_rn(x[m][n][2 * half], by.x, sum);
          sum = __fmaf_rn(x[m][n][2 * half + 1], by.y, sum);
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        if (threadIdx.x % 4 == 0) sums[warp_column() * M + r] += sign * sum;
      }
    }
  }

 private:
  // A lane's elements of both factors at eight places of the sum.
  struct Factors {
    float2 a[kM][2], b[kN];

    template <typename A, typename B>
    __device__ __forceinline__ void read(const A& from_a, const B& from_b, int k) {
      const int lane = static_cast<int>(threadIdx.x % 32), two = lane % 4 * 2;
#pragma unroll
      for (int m = 0; m < kM; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) a[m][half] = from_a.pair(row(m, half), k + two);
      }
#pragma unroll
      for (int n = 0; n < kN; ++n)
        b[n] = from_b.pair(warp_column() * kCols + n * 8 + lane / 4, k + two);
    }
  };
  __device__ __forceinline__ void multiply(const Factors& by) {
    uint32_t high[kM][4], low[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Tf32Parts first = tf32_parts(by.a[m][half].x);
        const Tf32Parts second = tf32_parts(by.a[m][half].y);
        high[m][half] = first.high, low[m][half] = first.low;
        high[m][half + 2] = second.high, low[m][half + 2] = second.low;
      }
    }
#pragma unroll
    for (int n = 0; n < kN; ++n) {
      const Tf32Parts first = tf32_parts(by.b[n].x), second = tf32_parts(by.b[n].y);
      const uint32_t b_high[2] = {first.high, second.high}, b_low[2] = {first.low, second.low};
#pragma unroll
      for (int m = 0; m < kM; ++m) multiply_tf32(x[m][n], low[m], b_high);
#pragma unroll
      for (int m = 0; m < kM; ++m) multiply_tf32(x[m][n], high[m], b_low);
#pragma unroll
      for (int m = 0; m < kM; ++m) multiply_tf32(x[m][n], high[m], b_high);
    }
  }
};

}  // namespace octet::cuda
