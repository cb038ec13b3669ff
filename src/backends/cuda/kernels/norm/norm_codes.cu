// Norms of codes in groups whose result is quantized with a scale made from it, in two passes: the
// statistics of every row and the amax of the result, then the codes.
//
// Pass 1: a warp takes a row, all its loads first. The values of the result are made only where
// they may be larger than what is known: no code is larger than 448, products and sums round
// monotonically, so that 448 times the group's scale, taken through the same operations with the
// largest weight of the group's columns, bounds the group's results. In groups that a quantizer
// made the bound is nearly met, and few groups are looked at.
// Pass 2: threads keep their columns, and take several rows at a time; the next rows are on their
// way as soon as these are stored. It goes backwards and streams: what pass 1 read last is still
// near, and stays so until it is read.
#include "backends/cuda/kernels/norm/norm_columns.cuh"
#include "backends/cuda/kernels/norm/norm_warp.cuh"

namespace octet::cuda {
namespace {

constexpr float kMaxCode = 448;
constexpr int kRowsAtOnce = 4;  // of pass 2

// The largest |p| of each group's columns, 1 where there is no vector; NaN where there is one.
__device__ __forceinline__ void column_bounds(const Unquantized& p, int n_groups, float* bounds) {
  for (int g = threadIdx.x; g < n_groups; g += kNormThreads) {
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

struct ColumnBounds {
  float weight[kMaxGroups], bias[kMaxGroups];
};

// Upper bounds of each group's results; Inf where they may be NaN; 0 behind the row's end.
template <bool kCentred, int K, bool kWhole>
__device__ __forceinline__ void bounds_of(const WarpRow<K, kWhole>& x, const NormRow& made,
                                          int n_groups, const ColumnBounds& columns,
                                          float (&bounds)[K]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    float b = kMaxCode * fabsf(x.scale(k));
    if constexpr (kCentred) b += fabsf(made.mean);
    b *= made.rstd;
    b *= columns.weight[lane + 32 * k];
    if constexpr (kCentred) b += columns.bias[lane + 32 * k];
    bounds[k] = x.is_inside(k, n_groups) ? fminf(b, __int_as_float(0x7F800000)) : 0.0f;
  }
}

// The values of one group, one in a lane.
template <bool kCentred>
__device__ __forceinline__ void look_together(const LayerArgs& a, int64_t row, int group,
                                              const NormRow& made, Largest& largest) {
  const int lane = threadIdx.x % 32;
  if (lane >= kChunk) return;
  const int col = group * kChunk + lane;
  const auto* const codes = static_cast<const uint8_t*>(a.x.data) + row * a.cols;
  const auto* const scales = static_cast<const uint16_t*>(a.x.scales) + row * (a.cols / kChunk);
  const float x = to_float<Dtype::e4m3>(codes[col]) * to_float<Dtype::bf16>(scales[group]);
  float v = normalized<kCentred>(x, made);
  if (a.weight.data != nullptr)
    v *= to_float<Dtype::bf16>(static_cast<const uint16_t*>(a.weight.data)[col]);
  if (kCentred && a.bias.data != nullptr)
    v += to_float<Dtype::bf16>(static_cast<const uint16_t*>(a.bias.data)[col]);
  largest.add(v);
}

// Until nothing may be larger than the largest: the warp looks at the most promising group, and
// where many are left each lane looks at its own.
template <bool kCentred, int K>
__device__ __forceinline__ void search(const LayerArgs& a, int64_t row, const NormRow& made,
                                       float (&bounds)[K], Largest& largest) {
  constexpr int kFew = 4;
  const int lane = threadIdx.x % 32;
  for (bool first = true;; first = false) {
    float best = bounds[0];
    int at = 0;
#pragma unroll
    for (int k = 1; k < K; ++k) {
      at = bounds[k] > best ? k : at;
      best = fmaxf(best, bounds[k]);
    }
    const uint32_t more = __ballot_sync(~0u, best > largest.amax);
    if (more == 0) return;
    bool looked = best > largest.amax;
    if (first || __popc(more) <= kFew) {
      const float top = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(best)));
      const int who = __ffs(static_cast<int>(__ballot_sync(~0u, best == top))) - 1;
      looked = lane == who;
      look_together<kCentred>(a, row, __shfl_sync(~0u, lane + 32 * at, who), made, largest);
    } else if (looked) {
      look_at<kCentred>(a, row, lane + 32 * at, made, largest);
    }
#pragma unroll
    for (int k = 0; k < K; ++k) bounds[k] = looked && k == at ? 0.0f : bounds[k];
    largest.amax = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(largest.amax)));
  }
}

template <bool kCentred, int K, bool kWhole>
__global__ void __launch_bounds__(kNormThreads, kNormResident<kCentred, K>)
    norm_amax(const __grid_constant__ LayerArgs a) {
  __shared__ ColumnBounds columns;
  const int n_groups = static_cast<int>(a.cols / kChunk);
  const int64_t n_warps = static_cast<int64_t>(gridDim.x) * kNormWarps;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kNormWarps + threadIdx.x / 32;
  if (row < a.rows) WarpRow<K, kWhole>::prefetch(a.x, row, n_groups);
  begin_pass(a.scale);
  column_bounds(a.weight, n_groups, columns.weight);
  if constexpr (kCentred) {
    if (a.bias.data != nullptr) column_bounds(a.bias, n_groups, columns.bias);
    for (int g = threadIdx.x; a.bias.data == nullptr && g < n_groups; g += kNormThreads)
      columns.bias[g] = 0;
  }
  __syncthreads();
  Largest largest;
  for (; row < a.rows; row += n_warps) {
    WarpRow<K, kWhole> x;
    x.load(a.x, row, n_groups);
    // Memory has work while the warps, all at the same place, have theirs.
    if (row + n_warps < a.rows) x.prefetch(a.x, row + n_warps, n_groups);
    const NormRow made = statistics_of<kCentred>(x, a, row);
    keep_statistics<kCentred>(a, row, made);
    float bounds[K];
    bounds_of<kCentred>(x, made, n_groups, columns, bounds);
    search<kCentred>(a, row, made, bounds, largest);
  }
  end_first_pass(a.scale, largest);
}

// R rows of one group of columns, and their statistics. Groups are counted in 32 bits: of fewer
// than 2^31.
template <bool kCentred, int R>
struct RowsOfCodes {
  uint32_t words[R][4];
  uint16_t scales[R];
  NormRow row[R];

  // `at` counts the groups before the first row's.
  __device__ __forceinline__ void load(const LayerArgs& a, uint32_t first, uint32_t at) {
    const auto n_groups = static_cast<uint32_t>(a.cols) / kChunk;
    const float* const mean = kCentred ? a.mean + first : nullptr;
    const float* const rstd = a.rstd + first;
#pragma unroll
    for (uint32_t r = 0; r < R; ++r) {
      const uint4 codes = __ldcs(static_cast<const uint4*>(a.x.data) + (at + r * n_groups));
      words[r][0] = codes.x, words[r][1] = codes.y, words[r][2] = codes.z, words[r][3] = codes.w;
      scales[r] = __ldcs(static_cast<const uint16_t*>(a.x.scales) + (at + r * n_groups));
      row[r] = {kCentred ? mean[r] : 0.0f, rstd[r]};
    }
  }
  __device__ __forceinline__ void encode(const LayerArgs& a, const GroupColumns<kCentred>& group,
                                         float inv_scale, uint32_t at) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const FourColumns<kCentred> columns(group, k);
#pragma unroll
      for (int r = 0; r < R; ++r)
        words[r][k] = norm_word<kCentred>(words[r][k], to_float<Dtype::bf16>(scales[r]), row[r],
                                          columns, inv_scale);
    }
    const auto n_groups = static_cast<uint32_t>(a.cols) / kChunk;
#pragma unroll
    for (uint32_t r = 0; r < R; ++r)
      __stcs(reinterpret_cast<uint4*>(a.codes) + (at + r * n_groups),
             make_uint4(words[r][0], words[r][1], words[r][2], words[r][3]));
  }
};

// Threads that a multiprocessor holds: 64 registers each, or more where there is a mean.
template <bool kCentred>
inline constexpr int kCodeThreads = kCentred ? 512 : 1024;

template <bool kCentred, int T>
__global__ void __launch_bounds__(T, kCodeThreads<kCentred> / T)
    norm_codes(const __grid_constant__ LayerArgs a) {
  constexpr uint32_t R = kRowsAtOnce;
  const auto n_groups = static_cast<uint32_t>(a.cols) / kChunk;
  const auto n_rows = static_cast<uint32_t>(a.rows), n_batches = n_rows / R;
  const uint32_t group = threadIdx.x;
  const bool active = group < n_groups, second = a.scale.pass == Pass::second;
  GroupColumns<kCentred> columns = {};
  if (active) columns.load(a, group * kChunk);
  const auto first_of = [&](uint32_t i) { return (second ? n_batches - 1 - i : i) * R; };
  RowsOfCodes<kCentred, R> rows;
  const auto fetch = [&](uint32_t i) {
    if (active && i < n_batches) rows.load(a, first_of(i), first_of(i) * n_groups + group);
  };
  const bool early = !a.scale.first_encodes;
  if (early) fetch(blockIdx.x);
  const Encoding e = begin_pass(a.scale);
  if (!e.codes || !active) return;
  if (!early) fetch(blockIdx.x);
  for (uint32_t i = blockIdx.x; i < n_batches; i += gridDim.x) {
    rows.encode(a, columns, e.inv_scale, first_of(i) * n_groups + group);
    fetch(i + gridDim.x);
  }
  // Rows behind the last batch.
  for (uint32_t row = n_batches * R + blockIdx.x; row < n_rows; row += gridDim.x) {
    RowsOfCodes<kCentred, 1> last;
    last.load(a, row, row * n_groups + group);
    last.encode(a, columns, e.inv_scale, row * n_groups + group);
  }
}

template <bool kCentred>
LayerLaunch amax_launch(const LayerArgs& a) {
  LayerLaunch made{nullptr, norm_warp_blocks(a), kNormThreads};
  visit_row_length(a.cols / kChunk,
                   [&]<int K, bool kWhole>() { made.kernel = norm_amax<kCentred, K, kWhole>; });
  return made;
}
template <bool kCentred>
LayerLaunch codes_launch(const LayerArgs& a) {
  const auto threads = static_cast<unsigned>(ceil_div(a.cols / kChunk, 32) * 32);
  const int64_t n_batches = ceil_div(a.rows, kRowsAtOnce);
  const auto grid =
      static_cast<unsigned>(wave_blocks(n_batches, kCodeThreads<kCentred> / threads, a.n_sm));
  return {threads <= 256 ? norm_codes<kCentred, 256> : norm_codes<kCentred, 512>, grid, threads};
}

}  // namespace

unsigned norm_warp_blocks(const LayerArgs& a) {
  const bool centred = a.layer == RowLayer::layer_norm, wide = a.cols / kChunk > 8 * 32;
  const int resident = centred ? (wide ? kNormResident<true, 16> : kNormResident<true, 8>)
                               : (wide ? kNormResident<false, 16> : kNormResident<false, 8>);
  return static_cast<unsigned>(wave_blocks(ceil_div(a.rows, kNormWarps), resident, a.n_sm));
}

LayerLaunch norm_amax_launch(const LayerArgs& a) {
  return a.layer == RowLayer::layer_norm ? amax_launch<true>(a) : amax_launch<false>(a);
}

LayerLaunch norm_codes_launch(const LayerArgs& a) {
  return a.layer == RowLayer::layer_norm ? codes_launch<true>(a) : codes_launch<false>(a);
}

}  // namespace octet::cuda
