// What the kernels of the gated delta rule are given, and tiles of it in shared memory.
#pragma once

#include "backends/cuda/kernels/attention/delta_product.cuh"
#include "backends/cuda/kernels/attention/gated_delta.h"
#include "backends/cuda/kernels/common/vector8.cuh"

namespace octet::cuda {

template <int kKeys>
inline constexpr int kKeyStride = delta_stride(kKeys);
inline constexpr int kPairStride = delta_stride(kDeltaRows);
inline constexpr int kPairElems = kDeltaRows * kDeltaRows;
inline constexpr float kDeltaLengthEps = 1e-6f;

// A chunk of a head of values, and which it is among those of all heads.
struct DeltaPlace {
  int64_t pair, chunk, at;
  int64_t text, head, key_head;
  int64_t first;  // token of the text
  int rows;       // tokens
};
__device__ __forceinline__ DeltaPlace delta_place(const DeltaTask& t, int64_t pair, int64_t chunk) {
  const GatedDeltaParams& p = t.p;
  const int64_t head = pair % p.heads, first = chunk * kDeltaRows;
  return {.pair = pair,
          .chunk = chunk,
          .at = pair * t.n_chunks + chunk,
          .text = pair / p.heads,
          .head = head,
          .key_head = head / (p.heads / p.key_heads),
          .first = first,
          .rows = static_cast<int>(min(p.seq - first, int64_t{kDeltaRows}))};
}

// Rows of a tile in memory: row r at first + r * stride, `rows` of `columns` elements.
struct DeltaRowsOf {
  Dtype dtype;
  int64_t first, stride;
  int rows, columns;
};
__device__ __forceinline__ DeltaRowsOf key_rows(const DeltaTask& t, const DeltaPlace& at,
                                                Dtype dtype) {
  const GatedDeltaParams& p = t.p;
  const int64_t stride = p.key_heads * p.key_dim;
  return {dtype, (at.text * p.seq + at.first) * stride + at.key_head * p.key_dim, stride, at.rows,
          static_cast<int>(p.key_dim)};
}
// Columns from `column` on of the head's values.
__device__ __forceinline__ DeltaRowsOf value_rows(const DeltaTask& t, const DeltaPlace& at,
                                                  Dtype dtype, int64_t column) {
  const GatedDeltaParams& p = t.p;
  const int64_t stride = p.heads * p.value_dim;
  return {dtype, (at.text * p.seq + at.first) * stride + at.head * p.value_dim + column, stride,
          at.rows, static_cast<int>(p.value_dim - column)};
}
// Of what chunks keep in scratch, [64, value_dim] each.
__device__ __forceinline__ DeltaRowsOf kept_rows(const DeltaTask& t, const DeltaPlace& at,
                                                 int64_t column) {
  const int64_t width = t.p.value_dim;
  return {Dtype::f32, at.at * kDeltaRows * width + column, width, kDeltaRows,
          static_cast<int>(width - column)};
}
// Of a state, number `at` of those in memory.
__device__ __forceinline__ DeltaRowsOf state_rows(const DeltaTask& t, Dtype dtype, int64_t at,
                                                  int64_t column) {
  const GatedDeltaParams& p = t.p;
  return {dtype, at * p.key_dim * p.value_dim + column, p.value_dim, static_cast<int>(p.key_dim),
          static_cast<int>(p.value_dim - column)};
}
__device__ __forceinline__ DeltaRowsOf pair_rows(const DeltaPlace& at) {
  return {Dtype::f32, at.at * kPairElems, kDeltaRows, kDeltaRows, kDeltaRows};
}

// Fills a tile of kRows x kCols, zeros where there is nothing.
template <int kRows, int kCols, int kStride>
__device__ __forceinline__ void load_rows(const void* x, const DeltaRowsOf& of, float* tile) {
  constexpr int kPacks = kCols / kEight;
  const bool in_eights = of.stride % kEight == 0 && of.first % kEight == 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += kDeltaThreads) {
    const int r = i / kPacks, c = i % kPacks * kEight;
    const int64_t at = of.first + r * of.stride + c;
    float v[kEight] = {};
    if (r < of.rows && in_eights && c + kEight <= of.columns) {
      widen8(load_raw8(x, at, of.dtype), of.dtype, v);
    } else if (r < of.rows) {
#pragma unroll
      for (int j = 0; j < kEight; ++j)
        v[j] = c + j < of.columns ? load_float(x, at + j, of.dtype) : 0;
    }
    auto* const to = reinterpret_cast<float4*>(tile + r * kStride + c);
    to[0] = {v[0], v[1], v[2], v[3]};
    to[1] = {v[4], v[5], v[6], v[7]};
  }
}

// Rows that the next chunk reads, into the cache of the device; nothing waits for them.
__device__ __forceinline__ void prefetch_rows(const void* x, const DeltaRowsOf& of, int columns) {
  constexpr int kLine = 128;
  const int64_t n_bytes = of.dtype == Dtype::f32 ? 4 : 2;
  const int lines = static_cast<int>((min(of.columns, columns) * n_bytes + kLine - 1) / kLine);
  for (int i = static_cast<int>(threadIdx.x); i < of.rows * lines; i += kDeltaThreads) {
    const int64_t at = (of.first + i / lines * of.stride) * n_bytes + i % lines * kLine;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(x) + at));
  }
}

// Two neighbouring values of a row.
__device__ __forceinline__ void store_two(void* x, const DeltaRowsOf& of, int2 place, float2 two) {
  const int r = place.x, c = place.y;
  if (r >= of.rows) return;
  const int64_t at = of.first + r * of.stride + c;
  if (of.dtype == Dtype::f32 && at % 2 == 0 && c + 2 <= of.columns) {
    *reinterpret_cast<float2*>(static_cast<float*>(x) + at) = two;
    return;
  }
  if (c < of.columns) store_float(x, at, of.dtype, two.x);
  if (c + 1 < of.columns) store_float(x, at + 1, of.dtype, two.y);
}
template <int M, int N>
__device__ __forceinline__ void store_product(void* x, const DeltaRowsOf& of,
                                              DeltaProduct<M, N>& product) {
  product.each([&](int r, int c, float a, float b) { store_two(x, of, {r, c}, {a, b}); });
}

__device__ __forceinline__ void load_numbers(const DeltaNumbers& from, DeltaNumbers& to) {
  constexpr int kPacks = sizeof(DeltaNumbers) / sizeof(float4);
  static_assert(sizeof(DeltaNumbers) % sizeof(float4) == 0);
  const auto* const x = reinterpret_cast<const float4*>(&from);
  auto* const y = reinterpret_cast<float4*>(&to);
  for (int i = static_cast<int>(threadIdx.x); i < kPacks; i += kDeltaThreads) y[i] = x[i];
}

// D of a pair of tokens.
__device__ __forceinline__ float delta_decay(const DeltaNumbers& n, int row, int column) {
  if (column > row || n.start[row] != n.start[column]) return 0;
  return expf(fminf(static_cast<float>(n.sums[row] - n.sums[column]), 0.0f));
}

}  // namespace octet::cuda
