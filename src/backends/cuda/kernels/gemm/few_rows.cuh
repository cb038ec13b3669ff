// The order of sums of products with a few rows, which neither the number of rows nor of columns
// changes: a column of y is made by 128 threads. Thread t takes pieces t, t + 128, ... of sixteen
// bytes of the column's weights, and adds their products in f32, each by one fused multiply-add, in
// the order of k. A warp adds its lanes' sums by halves (16, 8, 4, 2, 1 lanes apart), and the four
// warps' sums are added one after another. Where w has a scale for 128 x 128, the products of a
// piece are added by themselves, and their sum by a fused multiply-add with the scale. Kernels that
// keep to it have the same bits. Of t terms a sum has an
// error of at most t 2^-24 sum |x w|: t = k / 128 + 16 + 10.
#pragma once

#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/kernels/common/row_access.cuh"
#include "backends/cuda/launch/block_scales.h"

namespace octet::cuda {

inline constexpr int kFewRowsThreads = 128, kFewRowsColumns = 8;

// Elements of sixteen bytes.
template <Dtype D>
inline constexpr int kPerAccess = 16 / dtype_bytes(D);

template <Dtype D>
__device__ __forceinline__ void unpack_access(const uint4& raw, float* v) {
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (D == Dtype::e4m3) {
      widen_e4m3(words[i], v + 4 * i);
    } else {
      unpack_pair<D>(words[i], v + 2 * i);
    }
  }
}

enum class Scales : uint8_t { whole, blocks };

// Of a piece of sixteen elements of a column, which has so many; 0 behind the last.
__device__ __forceinline__ float scale_of_piece(const BlockScales& scales, int64_t column,
                                                int piece, int pieces) {
  if (piece >= pieces) return 0;
  const int64_t i = column / 128 * ((pieces + 7) / 8) + piece / 8;
  if (scales.is_f32) return static_cast<const float*>(scales.data)[i];
  return to_float<Dtype::bf16>(static_cast<const uint16_t*>(scales.data)[i]);
}

// The products of a piece, x's elements as floats: added to the sum one by one, or to each other
// and then, with the scale of their block, to the sum.
template <Dtype W, Scales S, int N>
__device__ __forceinline__ void add_piece(const float (&values)[N], const uint4& raw, float scale,
                                          float& sum) {
  float weights[N];
  unpack_access<W>(raw, weights);
  float of_piece = S == Scales::blocks ? 0.0f : sum;
#pragma unroll
  for (int j = 0; j < N; ++j) of_piece = __fmaf_rn(values[j], weights[j], of_piece);
  sum = S == Scales::blocks ? __fmaf_rn(of_piece, scale, sum) : of_piece;
}

// The sum over the warp of v[lane / 4], each added up by halves: lanes give away the columns that
// they do not end with, so that nine exchanges do for eight columns.
__device__ __forceinline__ float sum_over_lanes(const float (&v)[kFewRowsColumns], int lane) {
  float four[4], two[2];
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const bool high = (lane & 16) != 0;
    four[c] = (high ? v[c + 4] : v[c]) + __shfl_xor_sync(~0u, high ? v[c] : v[c + 4], 16);
  }
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const bool high = (lane & 8) != 0;
    two[c] = (high ? four[c + 2] : four[c]) + __shfl_xor_sync(~0u, high ? four[c] : four[c + 2], 8);
  }
  const bool high = (lane & 4) != 0;
  float sum = (high ? two[1] : two[0]) + __shfl_xor_sync(~0u, high ? two[0] : two[1], 4);
  sum += __shfl_xor_sync(~0u, sum, 2);
  return sum + __shfl_xor_sync(~0u, sum, 1);
}

}  // namespace octet::cuda
