// Norms of codes in groups whose result is quantized with a scale that is given or from the steps
// before: one pass. A warp takes a row, all its loads first; statistics, amax and codes are made of
// the row as it lies in registers, what a norm applies along the columns lies in shared memory.
#include "backends/cuda/kernels/norm/norm_warp.cuh"

namespace octet::cuda {
namespace {

// Weights and biases of all columns: piece h holds half h of each group, so that neighbouring
// groups are neighbours. No weight is 1, no bias -0, which change nothing.
template <bool kCentred>
struct Columns {
  uint4 pieces[kCentred ? 4 : 2][kMaxGroups];

  __device__ __forceinline__ void fill(const LayerArgs& a) {
    fill_half(a.weight, 0x3F803F80u, static_cast<int>(a.cols / kChunk), pieces);
    if constexpr (kCentred)
      fill_half(a.bias, 0x80008000u, static_cast<int>(a.cols / kChunk), pieces + 2);
  }
  // Half h of a group's values becomes what the norm makes of it.
  __device__ __forceinline__ void apply(int group, int h, const NormRow& row, float (&v)[8]) const {
    float p[8];
    unpack_eight(pieces[h][group], p);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = normalized<kCentred>(v[i], row) * p[i];
    if constexpr (kCentred) {
      unpack_eight(pieces[2 + h][group], p);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] += p[i];
    }
  }

 private:
  static __device__ __forceinline__ void unpack_eight(const uint4& piece, float (&p)[8]) {
    const uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) unpack_bf16(words[i], p + 2 * i);
  }
  static __device__ __forceinline__ void fill_half(const Unquantized& p, uint32_t otherwise,
                                                   int n_groups, uint4 (*to)[kMaxGroups]) {
    const uint4 nothing = make_uint4(otherwise, otherwise, otherwise, otherwise);
    for (int i = threadIdx.x; i < 2 * n_groups; i += kNormThreads)
      to[i % 2][i / 2] = p.data == nullptr ? nothing : static_cast<const uint4*>(p.data)[i];
  }
};

template <bool kCentred, int K, bool kWhole>
__global__ void __launch_bounds__(kNormThreads, kNormResident<kCentred, K>)
    norm_once(const __grid_constant__ LayerArgs a) {
  __shared__ Columns<kCentred> columns;
  const int n_groups = static_cast<int>(a.cols / kChunk), lane = threadIdx.x % 32;
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * kNormWarps;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kNormWarps + threadIdx.x / 32;
  if (row < a.rows) WarpRow<K, kWhole>::prefetch(a.x, row, n_groups);
  const Encoding e = begin_pass(a.scale);
  columns.fill(a);
  __syncthreads();
  Largest largest;
  for (; row < a.rows; row += n_warps) {
    WarpRow<K, kWhole> x;
    x.load(a.x, row, n_groups);
    // Memory has work while the warps, all at the same place, have theirs.
    if (row + n_warps < a.rows) x.prefetch(a.x, row + n_warps, n_groups);
    const NormRow made = statistics_of<kCentred>(x, a, row);
    keep_statistics<kCentred>(a, row, made);
    x.make_opaque();
    float m = 0;
    auto* const to = reinterpret_cast<uint4*>(a.codes) + row * n_groups + lane;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (!x.is_inside(k, n_groups)) continue;
      const uint32_t in[4] = {x.codes[k].x, x.codes[k].y, x.codes[k].z, x.codes[k].w};
      uint32_t out[4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float v[8];
        unpack_e4m3(in[2 * h], x.scale(k), v);
        unpack_e4m3(in[2 * h + 1], x.scale(k), v + 4);
        columns.apply(lane + 32 * k, h, made, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) asm("max.NaN.f32 %0, %0, %1;" : "+f"(m) : "f"(fabsf(v[i])));
        out[2 * h] = pack_codes<Dtype::e4m3>(v, e.inv_scale);
        out[2 * h + 1] = pack_codes<Dtype::e4m3>(v + 4, e.inv_scale);
      }
      if (e.codes) to[32 * k] = make_uint4(out[0], out[1], out[2], out[3]);
    }
    if (m < __int_as_float(0x7F800000)) {
      largest.amax = fmaxf(largest.amax, m);
    } else {
#pragma unroll 1
      for (int g = lane; g < n_groups; g += 32) look_at<kCentred>(a, row, g, made, largest);
    }
  }
  if (a.scale.pass == Pass::first) end_first_pass(a.scale, largest);
}

template <bool kCentred>
LayerLaunch launch_of(const LayerArgs& a) {
  LayerLaunch made{nullptr, norm_warp_blocks(a), kNormThreads};
  visit_row_length(a.cols / kChunk,
                   [&]<int K, bool kWhole>() { made.kernel = norm_once<kCentred, K, kWhole>; });
  return made;
}

}  // namespace

LayerLaunch norm_once_launch(const LayerArgs& a) {
  return a.layer == RowLayer::layer_norm ? launch_of<true>(a) : launch_of<false>(a);
}

}  // namespace octet::cuda
