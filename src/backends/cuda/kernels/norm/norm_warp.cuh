// A row of codes in groups that a warp holds, and its statistics.
#pragma once

#include "backends/cuda/kernels/common/layer.cuh"

namespace octet::cuda {

inline constexpr int kNormThreads = 256;
inline constexpr int kNormWarps = kNormThreads / 32;
inline constexpr int kMaxGroups = kFastCols / kChunk;
// Blocks of a multiprocessor: a lane holds 18 bytes of K groups.
template <bool kCentred, int K>
inline constexpr int kNormResident = K > 8      ? 2
                                     : kCentred ? 3
                                                : 4;

// The row of a warp: group lane + 32 k in element k. kWhole: of 32 K groups; otherwise of fewer,
// and zeros stand behind the row's end.
template <int K, bool kWhole>
struct WarpRow {
  uint4 codes[K];
  uint16_t scales[K];

  static __device__ __forceinline__ bool is_inside(int k, int n_groups) {
    return kWhole || static_cast<int>(threadIdx.x % 32) + 32 * k < n_groups;
  }
  // Prefetches the row into the cache, 128 bytes a lane; nothing waits for it.
  static __device__ __forceinline__ void prefetch(const Matrix& x, int64_t row, int n_groups) {
    const int at = static_cast<int>(threadIdx.x % 32) * 128;
    const auto* codes = static_cast<const char*>(x.data) + row * n_groups * kChunk + at;
    const auto* scales = static_cast<const char*>(x.scales) + row * n_groups * 2 + at;
#pragma unroll
    for (int i = 0; i < (K + 7) / 8; ++i) {
      if (at + i * 4096 < n_groups * kChunk)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(codes + i * 4096));
    }
    if (at < n_groups * 2) asm volatile("prefetch.global.L2 [%0];" ::"l"(scales));
  }
  __device__ __forceinline__ void load(const Matrix& x, int64_t row, int n_groups) {
    const int64_t at = row * n_groups + threadIdx.x % 32;
    const auto* from = static_cast<const uint4*>(x.data) + at;
    const auto* from_scales = static_cast<const uint16_t*>(x.scales) + at;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const bool inside = is_inside(k, n_groups);
      codes[k] = inside ? from[32 * k] : make_uint4(0, 0, 0, 0);
      scales[k] = inside ? from_scales[32 * k] : uint16_t{0};
    }
  }
  __device__ __forceinline__ float scale(int k) const {
    return to_float<Dtype::bf16>(scales[k]);
  }
  // An optimization barrier: nothing made of the codes stays in registers, which are for the codes.
  __device__ __forceinline__ void make_opaque() {
#pragma unroll
    for (int k = 0; k < K; ++k)
      asm volatile("" : "+r"(codes[k].x), "+r"(codes[k].y), "+r"(codes[k].z), "+r"(codes[k].w));
  }
  // The codes' values, not scaled.
  __device__ __forceinline__ void values(int k, float (&v)[kChunk]) const {
    const uint32_t words[4] = {codes[k].x, codes[k].y, codes[k].z, codes[k].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) widen_e4m3(words[i], v + 4 * i);
  }
};

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// Lane 0 writes them where they are wanted.
template <bool kCentred>
__device__ __forceinline__ void keep_statistics(const LayerArgs& a, int64_t row,
                                                const NormRow& made) {
  if (threadIdx.x % 32 != 0) return;
  if (kCentred) a.mean[row] = made.mean;
  a.rstd[row] = made.rstd;
}

// The lane's part of the sum of squares, value by value: a scale that is Inf times a code that is 0
// is NaN, which sums of codes alone do not see.
__device__ __forceinline__ float squares_of(const LayerArgs& a, int64_t row) {
  float sum = 0;
#pragma unroll 1
  for (int64_t c = threadIdx.x % 32 * kChunk; c < a.cols; c += 32 * kChunk) {
    float v[kChunk];
    unpack<Form::groups>(
        load_matrix<Form::groups, kChunk>(a.x, {row * a.cols + c, kChunk, INT64_MAX}), v);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum = fmaf(v[i], v[i], sum);
  }
  return sum;
}

// A product of a code and a scale has 12 bits, so that x - mean below rounds once, as
// (code * scale) - mean does.
template <bool kCentred, int K, bool kWhole>
__device__ __forceinline__ NormRow statistics_of(WarpRow<K, kWhole>& x, const LayerArgs& a,
                                                 int64_t row) {
  const auto cols = static_cast<float>(a.cols);
  const int n_groups = static_cast<int>(a.cols / kChunk);
  NormRow made{0, 1};
  if constexpr (kCentred) {
    float s0 = 0, s1 = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const float scale = x.scale(k);
      float v[kChunk];
      x.values(k, v);
#pragma unroll
      for (int i = 0; i < kChunk; i += 2) {
        s0 = fmaf(v[i], scale, s0);
        s1 = fmaf(v[i + 1], scale, s1);
      }
    }
    made.mean = warp_sum(s0 + s1) / cols;
    x.make_opaque();
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const float scale = x.scale(k);
    float v[kChunk], s0 = 0, s1 = 0;
    x.values(k, v);
#pragma unroll
    for (int i = 0; i < kChunk; i += 2) {
      const float d0 = kCentred ? fmaf(v[i], scale, -made.mean) : v[i];
      const float d1 = kCentred ? fmaf(v[i + 1], scale, -made.mean) : v[i + 1];
      s0 = fmaf(d0, d0, s0);
      s1 = fmaf(d1, d1, s1);
    }
    if constexpr (kCentred) {
      sum += x.is_inside(k, n_groups) ? s0 + s1 : 0.0f;
    } else {
      sum = fmaf((s0 + s1) * scale, scale, sum);
    }
  }
  sum = warp_sum(sum);
  if (!kCentred && !(sum < __int_as_float(0x7F800000))) sum = warp_sum(squares_of(a, row));
  made.rstd = rstd_of(sum, cols, a.eps);
  return made;
}

// The values of one group, exactly as codes are made of them, join `largest`.
template <bool kCentred>
__device__ __forceinline__ void look_at(const LayerArgs& a, int64_t row, int group,
                                        const NormRow& made, Largest& largest) {
  const Place columns{group * kChunk, kChunk, INT64_MAX};
  const Affine<Form::groups> affine = load_affine<kCentred, Form::groups>(a, columns);
  float v[kChunk];
  unpack<Form::groups>(
      load_matrix<Form::groups, kChunk>(a.x, {row * a.cols + columns.at, kChunk, INT64_MAX}), v);
  normalize<kCentred, Form::groups>(made, affine, v);
  largest.add(v);
}

// Calls f.template operator()<K, kWhole>() for rows of n_groups.
template <typename F>
void visit_row_length(int64_t n_groups, F&& f) {
  if (n_groups < 4 * 32) return f.template operator()<4, false>();
  if (n_groups == 4 * 32) return f.template operator()<4, true>();
  if (n_groups < 8 * 32) return f.template operator()<8, false>();
  if (n_groups == 8 * 32) return f.template operator()<8, true>();
  f.template operator()<16, false>();
}

}  // namespace octet::cuda
