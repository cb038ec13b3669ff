// Activations of codes in groups that are quantized with one scale: the amax of the result, mostly
// from the groups' scales alone, and the codes.
//
// The amax: no code is larger than 448, so that what 448 times its scales gives bounds a group's
// results. In groups that a quantizer made the bound is often nearly met: once some values are
// known, to all blocks, few groups may hold a larger one, and only theirs are looked at. What is
// not finite is found here where the scales let it be; a code that is NaN is found by the second
// pass.
#include "backends/cuda/kernels/rows_gated_codes.cuh"
#include "backends/cuda/kernels/rows_layer.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroups = 8;  // of a thread at a time: 16 bytes of scales
constexpr int kPiece = kThreads * kGroups;
constexpr int kBlocksPerSm = 4;
constexpr int64_t kBlocks = kBlocksPerSm * 132;
static_assert(kBlocks <= kRowBlocks);
constexpr float kMaxCode = 448;
// Above every rounding between a bound and the value that it bounds: a few units of 2^-24 for the
// products, and 3 * 2^-23 for the logistic (Powers::near).
constexpr float kSlack = 1 + 0x1p-18f;

// 16 bytes of scales of each operand; zeros behind the end.
struct Scales {
  uint4 x, up;
};

template <bool kGated>
__device__ __forceinline__ Scales load_scales(const LayerArgs& a, int64_t first, int64_t n) {
  Scales s{{0, 0, 0, 0}, {0, 0, 0, 0}};
  const auto* x = static_cast<const uint16_t*>(a.x.scales);
  const auto* up = static_cast<const uint16_t*>(a.up.scales);
  if (first + kGroups <= n) {
    s.x = *reinterpret_cast<const uint4*>(x + first);
    if constexpr (kGated) s.up = *reinterpret_cast<const uint4*>(up + first);
    return s;
  }
  const auto pair = [&](const uint16_t* from, int k) {
    const uint32_t low = first + k < n ? from[first + k] : 0u;
    return low | (first + k + 1 < n ? uint32_t{from[first + k + 1]} << 16 : 0u);
  };
  s.x = make_uint4(pair(x, 0), pair(x, 2), pair(x, 4), pair(x, 6));
  if constexpr (kGated) s.up = make_uint4(pair(up, 0), pair(up, 2), pair(up, 4), pair(up, 6));
  return s;
}

// What the results are at most; Inf where they may be NaN.
template <bool kGated>
__device__ __forceinline__ void bounds_of(const Scales& s, float (&bounds)[kGroups]) {
  const uint32_t xs[4] = {s.x.x, s.x.y, s.x.z, s.x.w};
  const uint32_t ups[4] = {s.up.x, s.up.y, s.up.z, s.up.w};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float x[2], up[2];
    unpack_bf16(xs[k], x);
    unpack_bf16(ups[k], up);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // |silu(x)| and |gelu(x)| are at most what they are at |x|, and |x|.
      const float m = kMaxCode * fabsf(x[i]);
      float b = kSlack * m;
      if constexpr (kGated) b *= logistic<Powers::near>(m) * (kMaxCode * fabsf(up[i]));
      bounds[2 * k + i] = fminf(b, __int_as_float(0x7F800000));
    }
  }
}

// The values of one group, exactly as the second pass makes them.
template <bool kGated>
__device__ __forceinline__ void look_at(const LayerArgs& a, int64_t group, Largest& largest) {
  const Place place{group * kChunk, kChunk, INT64_MAX};
  float v[kChunk];
  unpack<Form::groups>(load_matrix<Form::groups, kChunk>(a.x, place), v);
  if constexpr (kGated) {
    float up[kChunk];
    unpack<Form::groups>(load_matrix<Form::groups, kChunk>(a.up, place), up);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = gated_silu<kPowers<Form::groups>>(v[i], up[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = gelu<kPowers<Form::groups>>(a.layer, v[i]);
  }
  largest.add(v);
}

// The bits of the largest magnitude that any block has seen, and the blocks that have ended. Both
// are 0 again when the last has: kernels of a process follow each other.
struct Seen {
  unsigned int largest, n_ended;
};
__device__ Seen g_seen;

// The larger of what the warp knows and what all know.
__device__ __forceinline__ float share(float amax) {
  const unsigned int bits = __reduce_max_sync(~0u, __float_as_uint(amax));
  unsigned int others = 0;
  if (threadIdx.x % 32 == 0) others = atomicMax(&g_seen.largest, bits);
  others = __reduce_max_sync(~0u, others);
  return __uint_as_float(bits > others ? bits : others);
}

// Each lane looks at its most promising group, until none may hold more than the largest. The first
// to look is the lane whose group promises most: it spares most of the others their look.
template <bool kGated>
__device__ __forceinline__ void search(const LayerArgs& a, int64_t first, float (&bounds)[kGroups],
                                       Largest& largest) {
  bool alone = true;
  for (;;) {
    float best = bounds[0];
    int at = 0;
#pragma unroll
    for (int k = 1; k < kGroups; ++k) {
      at = bounds[k] > best ? k : at;
      best = fmaxf(best, bounds[k]);
    }
    const float most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(best)));
    if (!(most > largest.amax)) return;
    if (best > largest.amax && (!alone || best == most)) {
      look_at<kGated>(a, first + at, largest);
#pragma unroll
      for (int k = 0; k < kGroups; ++k) bounds[k] = k == at ? 0.0f : bounds[k];
    }
    alone = false;
    largest.amax = share(largest.amax);
  }
}

template <bool kGated>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    act_amax(const __grid_constant__ LayerArgs a) {
  begin_pass(a.scale);
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.scale.flag = 0;
  const int64_t n = a.rows * (a.cols / kChunk), n_pieces = (n + kPiece - 1) / kPiece;
  const auto first_of = [&](int64_t piece) {
    return piece * kPiece + static_cast<int64_t>(threadIdx.x) * kGroups;
  };
  Largest largest;
  Scales next = load_scales<kGated>(a, first_of(blockIdx.x), n);
  unsigned int seen = 0;  // when the piece was asked for
  for (int64_t i = blockIdx.x; i < n_pieces; i += gridDim.x) {
    float bounds[kGroups];
    bounds_of<kGated>(next, bounds);
    largest.amax =
        __uint_as_float(__reduce_max_sync(~0u, max(seen, __float_as_uint(largest.amax))));
    next = load_scales<kGated>(a, first_of(i + gridDim.x), n);
    seen = __ldcg(&g_seen.largest);
    search<kGated>(a, first_of(i), bounds, largest);
  }
  end_first_pass(a.scale, largest);
  // Behind end_first_pass's barriers all of the block have read.
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicInc(&g_seen.n_ended, gridDim.x - 1) == gridDim.x - 1) atomicExch(&g_seen.largest, 0u);
}

// Groups of a thread on their way at once, and blocks that a multiprocessor holds.
constexpr int kAtOnce = 2;
constexpr int kCodeBlocks = 5;

__global__ void __launch_bounds__(kThreads, kCodeBlocks)
    gated_rows(const __grid_constant__ LayerArgs a) {
  const Encoding e = begin_pass(a.scale);
  const int64_t n = a.rows * (a.cols / kChunk);
  const auto* gates = static_cast<const uint4*>(a.x.data);
  const auto* ups = static_cast<const uint4*>(a.up.data);
  const auto* gate_scales = static_cast<const uint16_t*>(a.x.scales);
  const auto* up_scales = static_cast<const uint16_t*>(a.up.scales);
  auto* codes = reinterpret_cast<uint4*>(a.codes);
  NanProducts nan;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (kAtOnce * kThreads);
  // Backwards: what was written last is still near.
  for (int64_t base = n - 1 - static_cast<int64_t>(blockIdx.x) * (kAtOnce * kThreads) -
                      static_cast<int>(threadIdx.x);
       base >= 0; base -= stride) {
    uint4 gate[kAtOnce] = {}, up[kAtOnce] = {};
    uint16_t gate_scale[kAtOnce] = {}, up_scale[kAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t i = base - k * kThreads;
      if (i < 0) continue;
      gate[k] = __ldcs(gates + i);
      up[k] = __ldcs(ups + i);
      gate_scale[k] = __ldcs(gate_scales + i);
      up_scale[k] = __ldcs(up_scales + i);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t i = base - k * kThreads;
      const GatedFactors factors(gate_scale[k], up_scale[k], e.inv_scale);
      const uint4 some = gated_codes(gate[k], up[k], factors, nan);
      if (i >= 0) codes[i] = some;
    }
  }
  if (a.scale.bounded && nan.any()) *a.scale.flag = 1;
}

}  // namespace

int act_amax_blocks(const LayerArgs& a) {
  return static_cast<int>(row_blocks(ceil_div(a.rows * (a.cols / kChunk), kPiece), kBlocks));
}

void launch_act_amax(const LayerArgs& a, cudaStream_t stream) {
  const auto grid = static_cast<unsigned>(act_amax_blocks(a));
  if (a.layer == RowLayer::gated_silu) {
    act_amax<true><<<grid, kThreads, 0, stream>>>(a);
  } else {
    act_amax<false><<<grid, kThreads, 0, stream>>>(a);
  }
  check_launch("act_amax");
}

void launch_gated_rows(const LayerArgs& a, cudaStream_t stream) {
  const int64_t n = a.rows * (a.cols / kChunk);
  const auto grid =
      static_cast<unsigned>(row_blocks(ceil_div(n, kAtOnce * kThreads), kCodeBlocks * 132));
  gated_rows<<<grid, kThreads, 0, stream>>>(a);
  check_launch("gated_rows");
}

}  // namespace octet::cuda
