// Activations of codes in groups that are quantized with one scale: the amax of the result, mostly
// from the groups' scales alone, and the codes.
//
// The amax: no code is larger than 448, so that what 448 times its scales gives bounds a group's
// results. In groups that a quantizer made the bound is often nearly met: once some values are
// known, to all blocks, few groups may hold a larger one, and only theirs are looked at. What is
// not finite is found here where the scales let it be; a code that is NaN is found by the second
// pass.
#include "backends/cuda/kernels/activation/gated_codes.cuh"
#include "backends/cuda/kernels/common/layer.cuh"
#include "backends/cuda/kernels/common/row_amax.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroups = 8;  // of a thread at a time: 16 bytes of scales
constexpr int kPiece = kThreads * kGroups;
constexpr int kBlocksPerSm = 4;
constexpr float kMaxCode = 448;
// Above every rounding between a bound and the value that it bounds: a few units of 2^-24 for the
// products, and 2^-21 for each of two logistics.
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

// Upper bounds of the results; Inf where they may be NaN.
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
      if constexpr (kGated) b *= logistic_exact(m) * (kMaxCode * fabsf(up[i]));
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
    for (int i = 0; i < kChunk; ++i) v[i] = gated_silu(v[i], up[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) v[i] = unary_activation(a.layer, v[i]);
  }
  largest.add(v);
}

// The larger of what the warp knows and what all know. Few tell all something new: the rest only
// read.
__device__ __forceinline__ float share(ActSeen& seen, float amax) {
  const unsigned int bits = __reduce_max_sync(~0u, __float_as_uint(amax));
  unsigned int others = __reduce_max_sync(~0u, __ldcg(&seen.largest));
  if (bits > others) {
    if (threadIdx.x % 32 == 0) others = atomicMax(&seen.largest, bits);
    others = __reduce_max_sync(~0u, others);
  }
  return __uint_as_float(bits > others ? bits : others);
}

// Below it no group holds more than the largest, whatever the logistic: of products of scales in
// bf16, whose rounding the slack is for. Negative, so that all may, where products may be 0 instead
// of something small.
__device__ __forceinline__ float hopeless(float largest, bool gated) {
  constexpr float kInverse = 1 / kMaxCode;
  constexpr float kRounding = 1 - 0x1p-6f;
  const float most = largest * kInverse * (gated ? kInverse : 1.0f) * kRounding;
  return largest >= 0x1p-90f ? most : -1.0f;
}
template <bool kGated>
__device__ __forceinline__ bool is_hopeless(const Scales& s, float most) {
  const uint32_t xs[4] = {s.x.x, s.x.y, s.x.z, s.x.w};
  const uint32_t ups[4] = {s.up.x, s.up.y, s.up.z, s.up.w};
  uint32_t products[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    auto pair = *reinterpret_cast<const __nv_bfloat162*>(&xs[k]);
    if constexpr (kGated) pair = __hmul2(pair, *reinterpret_cast<const __nv_bfloat162*>(&ups[k]));
    products[k] = *reinterpret_cast<const uint32_t*>(&pair);
  }
  PairRange range;
  range.add(products);
  const __nv_bfloat162 top = range.largest();
  float v[2];
  unpack_bf16(*reinterpret_cast<const uint32_t*>(&top), v);
  return v[0] <= most && v[1] <= most;
}

// The place of the largest of a lane's bounds.
__device__ __forceinline__ int best_of(const float (&bounds)[kGroups]) {
  float best = bounds[0];
  int at = 0;
#pragma unroll
  for (int k = 1; k < kGroups; ++k) {
    at = bounds[k] > best ? k : at;
    best = fmaxf(best, bounds[k]);
  }
  return at;
}
__device__ __forceinline__ float pick(const float (&bounds)[kGroups], int at) {
  float v = bounds[0];
#pragma unroll
  for (int k = 1; k < kGroups; ++k) v = k == at ? bounds[k] : v;
  return v;
}

// Each lane looks at its most promising group, until none may hold more than the largest. The first
// to look is the lane whose group promises most: it spares most of the others their look.
template <bool kGated>
__device__ __forceinline__ void search(const LayerArgs& a, int64_t first, const Scales& scales,
                                       Largest& largest) {
  float bounds[kGroups];
  bounds_of<kGated>(scales, bounds);
  for (bool alone = true;; alone = false) {
    const int at = best_of(bounds);
    const float best = pick(bounds, at);
    const float most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(best)));
    if (!(most > largest.amax)) return;
    if (best > largest.amax && (!alone || best == most)) {
      look_at<kGated>(a, first + at, largest);
#pragma unroll
      for (int k = 0; k < kGroups; ++k) bounds[k] = k == at ? 0.0f : bounds[k];
    }
    largest.amax = share(*a.seen, largest.amax);
  }
}

// Common start of a block's threads: the group that promises most of all that they hold
// first. Without it each warp would look at one.
template <bool kGated>
__device__ __forceinline__ void look_first(const LayerArgs& a, int64_t first, const Scales& scales,
                                           Largest& largest) {
  __shared__ uint32_t most[kThreads / 32];
  __shared__ unsigned int found;
  float bounds[kGroups];
  bounds_of<kGated>(scales, bounds);
  const int at = best_of(bounds);
  const uint32_t mine = __float_as_uint(pick(bounds, at));
  const uint32_t warp = __reduce_max_sync(~0u, mine);
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = warp;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  uint32_t all = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) all = max(all, most[w]);
  if (mine == all && all != 0) {
    look_at<kGated>(a, first + at, largest);
    const unsigned int bits = __float_as_uint(largest.amax);
    unsigned int seen = __ldcg(&a.seen->largest);
    if (bits > seen) seen = atomicMax(&a.seen->largest, bits);
    atomicMax(&found, max(seen, bits));
  }
  __syncthreads();
  largest.amax = __uint_as_float(found);
}

constexpr int kAhead = 2;  // pieces of a thread on their way

template <bool kGated>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    act_amax(const __grid_constant__ LayerArgs a) {
  const int64_t n = a.rows * (a.cols / kChunk), n_pieces = (n + kPiece - 1) / kPiece;
  const auto first_of = [&](int64_t piece) {
    return piece * kPiece + static_cast<int64_t>(threadIdx.x) * kGroups;
  };
  Scales next[kAhead];
  const auto fetch = [&](int64_t i) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      next[j] = load_scales<kGated>(a, first_of(i + int64_t{j} * gridDim.x), n);
  };
  fetch(blockIdx.x);
  begin_pass(a.scale);
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.scale.flag = 0;
  Largest largest;
  look_first<kGated>(a, first_of(blockIdx.x), next[0], largest);
  unsigned int seen = 0;  // when the pieces were asked for
  for (int64_t i = blockIdx.x; i < n_pieces; i += int64_t{kAhead} * gridDim.x) {
    Scales now[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) now[j] = next[j];
    largest.amax =
        __uint_as_float(__reduce_max_sync(~0u, max(seen, __float_as_uint(largest.amax))));
    fetch(i + int64_t{kAhead} * gridDim.x);
    seen = __ldcg(&a.seen->largest);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const bool skips = is_hopeless<kGated>(now[j], hopeless(largest.amax, kGated));
      if (!__all_sync(~0u, skips))
        search<kGated>(a, first_of(i + int64_t{j} * gridDim.x), now[j], largest);
    }
  }
  end_first_pass(a.scale, largest);
  // Behind end_first_pass's barriers all of the block have read.
  if (threadIdx.x == 0 && count_block(&a.seen->n_ended, gridDim.x))
    atomicExch(&a.seen->largest, 0u);
}

// Groups of a thread on their way at once, and blocks that a multiprocessor holds.
constexpr int kAtOnce = 2;
constexpr int kCodeBlocks = 5;

// Groups are counted in 32 bits: 2^32 of them and their codes do not fit into a GPU.
struct GatedGroup {
  uint4 gate = {0, 0, 0, 0}, up = {0, 0, 0, 0};
  uint16_t gate_scale = 0, up_scale = 0;

  __device__ __forceinline__ void load(const LayerArgs& a, uint32_t i) {
    gate = __ldcs(static_cast<const uint4*>(a.x.data) + i);
    up = __ldcs(static_cast<const uint4*>(a.up.data) + i);
    gate_scale = __ldcs(static_cast<const uint16_t*>(a.x.scales) + i * a.x.scale_step);
    up_scale = __ldcs(static_cast<const uint16_t*>(a.up.scales) + i * a.up.scale_step);
  }
};

// Backwards: what was written last is still near. A group's place is taken by the one that follows
// as soon as its codes are made; behind the end the last ones stay.
__global__ void __launch_bounds__(kThreads, kCodeBlocks)
    gated_rows(const __grid_constant__ LayerArgs a) {
  const auto n = static_cast<uint32_t>(a.rows * (a.cols / kChunk));
  const uint32_t stride = gridDim.x * (kAtOnce * kThreads);
  GatedGroup group[kAtOnce];
  const auto fetch = [&](uint32_t base, int k) {
    const uint32_t i = base + static_cast<uint32_t>(k * kThreads);
    if (i < n) group[k].load(a, n - 1 - i);
  };
  uint32_t base = blockIdx.x * (kAtOnce * kThreads) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) fetch(base, k);
  const Encoding e = begin_pass(a.scale);
  NanCodes nan;
  for (; base < n; base += stride) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const GatedGroup& g = group[k];
      const uint4 codes =
          gated_codes(g.gate, g.up, GatedScales(g.gate_scale, g.up_scale, e.inv_scale));
      nan.add(codes);
      fetch(base + stride, k);
      const uint32_t i = base + static_cast<uint32_t>(k * kThreads);
      if (i < n) reinterpret_cast<uint4*>(a.codes)[n - 1 - i] = codes;
    }
  }
  if (a.scale.bounded && nan.any()) *a.scale.flag = 1;
}

}  // namespace

LayerLaunch act_amax_launch(const LayerArgs& a) {
  const int64_t n_pieces = ceil_div(a.rows * (a.cols / kChunk), kPiece);
  return {a.layer == RowLayer::gated_silu ? act_amax<true> : act_amax<false>,
          static_cast<unsigned>(wave_blocks(n_pieces, kBlocksPerSm, a.n_sm)), kThreads};
}

LayerLaunch gated_rows_launch(const LayerArgs& a) {
  const int64_t n_pieces = ceil_div(a.rows * (a.cols / kChunk), kAtOnce * kThreads);
  return {gated_rows, static_cast<unsigned>(wave_blocks(n_pieces, kCodeBlocks, a.n_sm)), kThreads};
}

}  // namespace octet::cuda
