// Norms of codes in groups whose result is quantized with a scale made from it, in two passes: the
// statistics of every row and the amax of the result, then the codes.
//
// Pass 1: a warp takes a row, all its loads first. The values of the result are made only where
// they may be larger than what is known: no code is larger than 448, products and sums round
// monotonically, so that 448 times the group's scale, taken through the same operations with the
// largest weight of the group's columns, bounds the group's results. In groups that a quantizer
// made the bound is nearly met, and few groups are looked at.
// Pass 2: threads keep their columns, several rows on their way. It goes backwards and streams:
// what pass 1 read last is still near, and stays so until it is read.
#include "backends/cuda/kernels/rows_layer.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxGroups = kFastCols / kChunk;
constexpr float kMaxCode = 448;
template <bool kCentred>
inline constexpr int kRowsAtOnce = kCentred ? 2 : 4;  // of pass 2

// The largest |p| of each group's columns, 1 where there is no vector; NaN where there is one.
__device__ __forceinline__ void column_bounds(const Wide& p, int n_groups, float* bounds) {
  for (int g = threadIdx.x; g < n_groups; g += kThreads) {
    float m = 1;
    if (p.data != nullptr) {
      float v[kChunk];
      unpack<Form::bf16>(load_raw<Form::bf16, kChunk>(p.data, nullptr, {g * kChunk, 0, INT64_MAX}),
                         v);
      m = 0;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) asm("max.NaN.f32 %0, %0, %1;" : "+f"(m) : "f"(fabsf(v[i])));
    }
    bounds[g] = m;
  }
}

__device__ __forceinline__ void widen_e4m3(uint32_t codes, float* v) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const auto two = static_cast<__nv_fp8x2_storage_t>(codes >> (16 * h));
    const float2 f = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
    v[2 * h] = f.x;
    v[2 * h + 1] = f.y;
  }
}

// The row of a warp: group lane + 32 k in element k, nothing behind the row's end.
template <int K>
struct WarpRow {
  uint4 codes[K];
  uint16_t scales[K];

  __device__ __forceinline__ void load(const Matrix& x, int64_t row, int n_groups) {
    const int lane = threadIdx.x % 32;
    const auto* from = static_cast<const uint4*>(x.data) + row * n_groups + lane;
    const auto* from_scales = static_cast<const uint16_t*>(x.scales) + row * n_groups + lane;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const bool inside = lane + 32 * k < n_groups;
      codes[k] = inside ? from[32 * k] : make_uint4(0, 0, 0, 0);
      scales[k] = inside ? from_scales[32 * k] : uint16_t{0};
    }
  }
  __device__ __forceinline__ float scale(int k) const {
    return to_float<Dtype::bf16>(scales[k]);
  }
  // Nothing made of the codes is kept: registers are for codes.
  __device__ __forceinline__ void hide() {
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
template <bool kCentred, int K>
__device__ __forceinline__ NormRow statistics_of(WarpRow<K>& x, const LayerArgs& a, int64_t row) {
  const auto cols = static_cast<float>(a.cols);
  const int n_groups = static_cast<int>(a.cols / kChunk), lane = threadIdx.x % 32;
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
    x.hide();
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
      sum += lane + 32 * k < n_groups ? s0 + s1 : 0.0f;
    } else {
      sum = fmaf((s0 + s1) * scale, scale, sum);
    }
  }
  sum = warp_sum(sum);
  if (!kCentred && !(sum < __int_as_float(0x7F800000))) sum = warp_sum(squares_of(a, row));
  made.rstd = 1.0f / sqrtf(sum / cols + a.eps);
  return made;
}

// The values of one group, exactly as the second pass makes them, join `largest`.
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

struct ColumnBounds {
  float weight[kMaxGroups], bias[kMaxGroups];
};

// What the results of each group are at most; Inf where they may be NaN; 0 behind the row's end.
template <bool kCentred, int K>
__device__ __forceinline__ void bounds_of(const WarpRow<K>& x, const NormRow& made, int n_groups,
                                          const ColumnBounds& columns, float (&bounds)[K]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int group = lane + 32 * k;
    float b = kMaxCode * fabsf(x.scale(k));
    if constexpr (kCentred) b += fabsf(made.mean);
    b *= made.rstd;
    if (group < n_groups) {
      b *= columns.weight[group];
      if constexpr (kCentred) b += columns.bias[group];
      bounds[k] = fminf(b, __int_as_float(0x7F800000));
    } else {
      bounds[k] = 0;
    }
  }
}

// Each lane looks at its most promising group, until nothing may be larger than the largest.
template <bool kCentred, int K>
__device__ __forceinline__ void search(const LayerArgs& a, int64_t row, const NormRow& made,
                                       float (&bounds)[K], Largest& largest) {
  const int lane = threadIdx.x % 32;
  for (;;) {
    float best = bounds[0];
    int at = 0;
#pragma unroll
    for (int k = 1; k < K; ++k) {
      at = bounds[k] > best ? k : at;
      best = fmaxf(best, bounds[k]);
    }
    if (!__any_sync(~0u, best > largest.amax)) return;
    if (best > largest.amax) look_at<kCentred>(a, row, lane + 32 * at, made, largest);
#pragma unroll
    for (int k = 0; k < K; ++k) bounds[k] = k == at ? 0.0f : bounds[k];
    largest.amax = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(largest.amax)));
  }
}

// Blocks of a multiprocessor: a lane holds 18 bytes of K groups.
template <bool kCentred, int K>
inline constexpr int kResident = kCentred ? (K > 8 ? 2 : 3) : (K > 8 ? 3 : 4);

template <bool kCentred, int K>
__global__ void __launch_bounds__(kThreads, kResident<kCentred, K>)
    norm_amax(const __grid_constant__ LayerArgs a) {
  __shared__ ColumnBounds columns;
  begin_pass(a.scale);
  const int n_groups = static_cast<int>(a.cols / kChunk);
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * kWarps;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  column_bounds(a.weight, n_groups, columns.weight);
  if constexpr (kCentred) {
    if (a.bias.data != nullptr) column_bounds(a.bias, n_groups, columns.bias);
    for (int g = threadIdx.x; a.bias.data == nullptr && g < n_groups; g += kThreads)
      columns.bias[g] = 0;
  }
  __syncthreads();
  Largest largest;
  for (; row < a.rows; row += n_warps) {
    WarpRow<K> x;
    x.load(a.x, row, n_groups);
    const NormRow made = statistics_of<kCentred>(x, a, row);
    if (threadIdx.x % 32 == 0) {
      if (kCentred) a.mean[row] = made.mean;
      a.rstd[row] = made.rstd;
    }
    float bounds[K];
    bounds_of<kCentred>(x, made, n_groups, columns, bounds);
    search<kCentred>(a, row, made, bounds, largest);
  }
  end_first_pass(a.scale, largest);
}

// Four columns of what a norm applies: no weight is 1, no bias -0, which change nothing.
struct FourColumns {
  float weight[4], bias[4];

  __device__ __forceinline__ FourColumns(const Affine<Form::groups>& affine, int word) {
    half_of(affine.weight, affine.has_weight, 0x3F803F80u, word, weight);
    half_of(affine.bias, affine.has_bias, 0x80008000u, word, bias);
  }

 private:
  static __device__ __forceinline__ void half_of(const Raw<Form::bf16>& raw, bool there,
                                                 uint32_t otherwise, int word, float* v) {
    const uint4& at = raw.at[word / 2];
    unpack_bf16(there ? (word % 2 == 0 ? at.x : at.z) : otherwise, v);
    unpack_bf16(there ? (word % 2 == 0 ? at.y : at.w) : otherwise, v + 2);
  }
};

// What a thread reads and writes: one group of columns.
struct CodeColumns {
  const uint4* codes;
  const uint16_t* scales;
  uint4* to;
  const float *mean, *rstd;
  int64_t n_groups;  // from row to row
  Affine<Form::groups> affine;
  float inv_scale;
};

// R rows, all loads first: their codes become the codes of the result.
template <bool kCentred, int R>
__device__ __forceinline__ void norm_some(const CodeColumns& c, int64_t first) {
  const uint4* codes = c.codes + first * c.n_groups;
  const uint16_t* scales = c.scales + first * c.n_groups;
  uint4* to = c.to + first * c.n_groups;
  uint32_t words[R][4];
  float scale[R];
  NormRow row[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const uint4 four = __ldcs(codes + r * c.n_groups);
    words[r][0] = four.x, words[r][1] = four.y, words[r][2] = four.z, words[r][3] = four.w;
    scale[r] = to_float<Dtype::bf16>(__ldcs(scales + r * c.n_groups));
    row[r] = {kCentred ? c.mean[first + r] : 0.0f, c.rstd[first + r]};
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const FourColumns columns(c.affine, k);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      float v[4];
      unpack_e4m3(words[r][k], scale[r], v);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[i] = (kCentred ? v[i] - row[r].mean : v[i]) * row[r].rstd * columns.weight[i];
        if constexpr (kCentred) v[i] += columns.bias[i];
      }
      words[r][k] = pack_codes<Dtype::e4m3>(v, c.inv_scale);
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r)
    __stcs(to + r * c.n_groups, make_uint4(words[r][0], words[r][1], words[r][2], words[r][3]));
}

template <bool kCentred>
__global__ void __launch_bounds__(kMaxGroups, 2) norm_codes(const __grid_constant__ LayerArgs a) {
  constexpr int R = kRowsAtOnce<kCentred>;
  const Encoding e = begin_pass(a.scale);
  const int64_t n_groups = a.cols / kChunk;
  const int group = threadIdx.x;
  if (!e.codes || group >= n_groups) return;
  const CodeColumns columns = {
      .codes = static_cast<const uint4*>(a.x.data) + group,
      .scales = static_cast<const uint16_t*>(a.x.scales) + group,
      .to = reinterpret_cast<uint4*>(a.codes) + group,
      .mean = a.mean,
      .rstd = a.rstd,
      .n_groups = n_groups,
      .affine = load_affine<kCentred, Form::groups>(a, {group * kChunk, kChunk, INT64_MAX}),
      .inv_scale = e.inv_scale};
  const int64_t n_batches = (a.rows + R - 1) / R;
  for (int64_t i = blockIdx.x; i < n_batches; i += gridDim.x) {
    const int64_t first = (a.scale.pass == Pass::second ? n_batches - 1 - i : i) * R;
    if (first + R <= a.rows) {
      norm_some<kCentred, R>(columns, first);
    } else {
#pragma unroll 1
      for (int64_t row = first; row < a.rows; ++row) norm_some<kCentred, 1>(columns, row);
    }
  }
}

template <bool kCentred, int K>
void launch_amax(const LayerArgs& a, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(norm_amax_blocks(a));
  norm_amax<kCentred, K><<<grid, kThreads, 0, stream>>>(a);
}
// Groups of a lane: one multiprocessor's registers hold the fewer warps for it.
int groups_per_lane(const LayerArgs& a) {
  const int64_t n_groups = a.cols / kChunk;
  return n_groups <= 4 * 32 ? 4 : n_groups <= 8 * 32 ? 8 : 16;
}
template <bool kCentred>
void launch_amax_kind(const LayerArgs& a, cudaStream_t stream) {
  const int n = groups_per_lane(a);
  n == 4   ? launch_amax<kCentred, 4>(a, stream)
  : n == 8 ? launch_amax<kCentred, 8>(a, stream)
           : launch_amax<kCentred, 16>(a, stream);
}
template <bool kCentred>
void launch_codes(const LayerArgs& a, cudaStream_t stream) {
  const auto threads = static_cast<unsigned>(ceil_div(a.cols / kChunk, 32) * 32);
  const int64_t n_batches = ceil_div(a.rows, kRowsAtOnce<kCentred>);
  const auto grid = static_cast<unsigned>(row_blocks(n_batches, 1024 / threads * 132));
  norm_codes<kCentred><<<grid, threads, 0, stream>>>(a);
}

}  // namespace

// One wave of 132 multiprocessors.
int norm_amax_blocks(const LayerArgs& a) {
  const bool centred = a.layer == RowLayer::layer_norm, wide = groups_per_lane(a) > 8;
  const int resident = centred ? (wide ? kResident<true, 16> : kResident<true, 8>)
                               : (wide ? kResident<false, 16> : kResident<false, 8>);
  return static_cast<int>(row_blocks(ceil_div(a.rows, kWarps), resident * 132));
}

void launch_norm_amax(const LayerArgs& a, cudaStream_t stream) {
  a.layer == RowLayer::layer_norm ? launch_amax_kind<true>(a, stream)
                                  : launch_amax_kind<false>(a, stream);
  check_launch("norm_amax");
}

void launch_norm_codes(const LayerArgs& a, cudaStream_t stream) {
  a.layer == RowLayer::layer_norm ? launch_codes<true>(a, stream) : launch_codes<false>(a, stream);
  check_launch("norm_codes");
}

}  // namespace octet::cuda
