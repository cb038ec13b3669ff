// What a warp of a tile kernel knows of the tensor that it is at, and the arithmetic of a tile.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_codes.cuh"
#include "backends/cuda/kernels/adamw/adamw_tile.cuh"

namespace octet::cuda {

// x behind an optimization barrier: the compiler keeps it in a register instead of computing it
// again.
__device__ __forceinline__ uint32_t opaque(uint32_t x) {
  asm("" : "+r"(x));
  return x;
}

// What is the same for every element of expanded E4M3.
struct StepConstants {
  float log2_beta1, log2_beta2;
  float g_of_m, gg_of_v;      // (1 - beta1) s, (1 - beta2) s^2; s scales the gradient
  float size_of_v, size_eps;  // (sqrt(v / c2) + eps) c1 / lr = sqrt(v) size_of_v + size_eps
  float minus_decay;          // -lr weight_decay
  float most_v;               // above it products of four sizes leave f32
};
__device__ __forceinline__ StepConstants step_constants(const AdamwConstants& k) {
  StepConstants c{};
  c.log2_beta1 = fast_log2(k.beta1);
  c.log2_beta2 = fast_log2(k.beta2);
  c.g_of_m = (1.0f - k.beta1) * k.grad_scale;
  c.gg_of_v = (1.0f - k.beta2) * k.grad_scale * k.grad_scale;
  const float inv_rate = k.c1 * fast_inverse(k.lr);
  c.size_of_v = inv_rate * fast_inverse(fast_sqrt(k.c2));
  c.size_eps = k.eps * inv_rate;
  if (!(fabsf(c.size_eps) < 0x1p30f)) c.size_eps = __uint_as_float(kF32Nan);  // to step_group
  c.minus_decay = -k.lr * k.weight_decay;
  const float unit = fast_inverse(c.size_of_v);
  c.most_v = fminf(0x1p100f, 0x1p60f * unit * unit);
  return c;
}

// What a warp knows of the tensor that it is at.
struct Place {
  const AdamwCall* call;
  const RoundKeys* keys;
  const char* tables;  // of Codec::expanded
  AdamwConstants k;
  StepConstants c;
  DrawShared draws;
  uint32_t first_draw;  // the counter of element 0
  uint32_t lane;
  uint32_t offset;  // of the lane's first element in a tile
};
template <Codec C>
__device__ __forceinline__ uint32_t offset_of(uint32_t lane) {
  return lane / kLanesOf<C> * kMomentGroup + lane % kLanesOf<C> * kRun;
}
template <Codec C>
__device__ __forceinline__ uint32_t end_of_whole(const AdamwCall& call) {
  return static_cast<uint32_t>(call.end) / kTileOf<C> * kTileOf<C>;
}
template <Codec C, WeightStore S>
__device__ __forceinline__ Place place_of(const AdamwCall& call, const RoundKeys& keys,
                                          const char* tables, const AdamwConstants& k) {
  const uint32_t lane = opaque(threadIdx.x % 32);
  Place p{.call = &call,
          .keys = &keys,
          .tables = tables,
          .k = k,
          .c = {},
          .draws = {},
          .first_draw = static_cast<uint32_t>(call.origin / 4),
          .lane = lane,
          .offset = opaque(offset_of<C>(lane))};
  if constexpr (C == Codec::expanded) p.c = step_constants(k);
  if constexpr (S == WeightStore::stochastic) {
    p.draws = draw_shared(keys, static_cast<uint32_t>(call.origin >> 34), *call.attempt);
  }
  return p;
}

template <Codec C>
struct Elements {
  float m[kEachOf<C>], v[kEachOf<C>], w[kEachOf<C>];
};

// lr / c1 / (sqrt(v / c2) + eps) of four elements: four inverses by one.
__device__ __forceinline__ void invert_four(const float (&size)[4], float (&inverse)[4]) {
  const float low = size[0] * size[1], high = size[2] * size[3];
  const float all = fast_inverse(low * high);
  const float of_low = all * high, of_high = all * low;
  inverse[0] = size[1] * of_low, inverse[1] = size[0] * of_low;
  inverse[2] = size[3] * of_high, inverse[3] = size[2] * of_high;
}

// The new m, v and w of the lane's elements; whether something of them is unusual.
template <WeightStore S, Dtype G>
__device__ __forceinline__ bool update(const Place& p, const Raw<Codec::expanded, S, G>& raw,
                                       Elements<Codec::expanded>& x) {
  const StepConstants& c = p.c;
  const Decoding of_m = decoding_of(p.tables, raw.meta_m, c.log2_beta1);
  const Decoding of_v = decoding_of(p.tables, raw.meta_v, c.log2_beta2);
  float bad = 0;
#pragma unroll
  for (int first = 0; first < kEachOf<Codec::expanded>; first += 4) {
    float size[4], inverse[4];
#pragma unroll
    for (int j = first; j < first + 4; ++j) {
      const uint32_t sign = (raw.m[j / 4] << (24 - j % 4 * 8)) & kSign;
      const float m = of_m.value(log2_of_code<false>(p.tables, p.lane, raw.m[j / 4], j % 4));
      const float v = of_v.value(log2_of_code<true>(p.tables, p.lane, raw.v[j / 4], j % 4));
      const float g = raw.gradient(j);
      x.m[j] = __fmaf_rn(g, c.g_of_m, __uint_as_float(__float_as_uint(m) ^ sign));
      x.v[j] = __uint_as_float(opaque(__float_as_uint(__fmaf_rn(g * c.gg_of_v, g, v))));
      size[j - first] = __fmaf_rn(fast_sqrt(x.v[j]), c.size_of_v, c.size_eps);
    }
    invert_four(size, inverse);
#pragma unroll
    for (int j = first; j < first + 4; ++j) {
      const float old = raw.weight(j);
      const float decayed = __fmaf_rn(old, c.minus_decay, old);
      x.w[j] = __fmaf_rn(-x.m[j], inverse[j - first], decayed);
    }
    bad = __fmaf_rn(x.w[first], x.w[first + 1], bad);
    bad = __fmaf_rn(x.w[first + 2], x.w[first + 3], bad);
  }
  return of_m.far | of_v.far | !(fabsf(bad) < __uint_as_float(kF32Inf));
}
// By the exact formulas.
template <Codec C, WeightStore S, Dtype G>
__device__ __forceinline__ bool update(const Place& p, const Raw<C, S, G>& raw, Elements<C>& x) {
  bool odd = decode_codes<Moment::first>(p.call->p.m, raw.m, raw.meta_m, x.m);
  if constexpr (C == Codec::codes) {
    odd |= decode_codes<Moment::second>(p.call->p.v, raw.v, raw.meta_v, x.v);
  } else {
    const float scale = C == Codec::fp16 ? scale_of_v(*p.call) : 1.0f;
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      if constexpr (C == Codec::f32)
        x.v[j] = __uint_as_float(raw.v[j]);
      else
        x.v[j] = to_float<Dtype::fp16>(static_cast<uint16_t>(raw.v[j / 2] >> (j % 2 * 16))) * scale;
    }
  }
  float bad = 0;
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    const AdamwElement next = adamw_element(p.k, {raw.weight(j), x.m[j], x.v[j]}, raw.gradient(j));
    x.w[j] = next.w, x.m[j] = next.m, x.v[j] = next.v;
    bad = __fmaf_rn(next.w, 0.0f, bad);
  }
  return odd | (bad != 0.0f);  // NaN where a new weight is not finite
}

// Of a lane's half of a group: its metadata, and how codes are made with it. False, for the whole
// warp, where a lane found something unusual: then nothing is to be written.
__device__ __forceinline__ bool settle(const Place& p, Elements<Codec::expanded>& x, bool odd,
                                       Encoding& mine) {
  constexpr Codec kC = Codec::expanded;
  const bool second = (p.lane & kLanesOf<kC> / 2) != 0;
  const uint32_t most = __float_as_uint(second ? p.c.most_v : 0x1p100f);
  Extent extent = group_extent<kC, true>(x.m, x.v, second);
  Choice choice = choice_of(extent);
  const bool zeros = (extent.amin == 0) & (extent.amax != 0);
  if (__any_sync(~0u, odd | zeros | is_far(extent, most) | is_doubtful(choice))) {
    if (__any_sync(~0u, zeros)) extent = group_extent<kC, false>(x.m, x.v, second);
    if (__any_sync(~0u, odd | is_far(extent, most))) return false;
    choice = exact_choice_of(extent);
  }
  // Not the magnitudes that the extents were made of, held in as many registers.
#pragma unroll
  for (float& m : x.m) m = __uint_as_float(opaque(__float_as_uint(m)));
  mine = encoding_of(extent, choice);
  return true;
}
template <Codec C>
__device__ __forceinline__ bool settle(const Place& p, Elements<C>& x, bool odd, Encoding& mine) {
  const bool second = (p.lane & kLanesOf<C> / 2) != 0;
  const MomentParams& f = second && kBothCoded<C> ? p.call->p.v : p.call->p.m;
  Extent extent = group_extent<C, true>(x.m, x.v, second);
  if (__any_sync(~0u, extent.amin == 0 && extent.amax != 0))
    extent = group_extent<C, false>(x.m, x.v, second);
  AbsRange range;
  range.amax = __uint_as_float(extent.amax), range.amin = __uint_as_float(extent.amin);
  if (__any_sync(~0u, odd | is_far(f, range))) return false;
  mine.meta = meta_of<Formats::ieee, Moment::first>({.dtype = f.dtype, .expand = f.expand}, range);
  return true;
}

}  // namespace octet::cuda
