// The step with expanded E4M3 moments: what a warp knows of the tensor that it is at, and the
// arithmetic of a tile of it.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_any.cuh"
#include "backends/cuda/kernels/adamw/adamw_codes.cuh"
#include "backends/cuda/kernels/adamw/adamw_draw.cuh"
#include "backends/cuda/kernels/adamw/adamw_tile.cuh"

namespace octet::cuda {

// Whether tiles are staged in shared memory, which leaves registers for more warps, or wait in
// registers. Where more bytes come with an element, memory is what takes time, and gives 4 % more
// of them to the latter.
template <WeightStore S>
inline constexpr bool kStaged = S == WeightStore::stochastic;
template <WeightStore S>
inline constexpr int kThreads = kStaged<S> ? 640 : 512;  // one block to a multiprocessor

template <WeightStore S, Dtype G>
__device__ __forceinline__ float gradient_at(const Raw<S, G>& raw, int j) {
  return G == Dtype::f32 ? __uint_as_float(raw.g[j]) : bf16_at(raw.g, j);
}
template <WeightStore S, Dtype G>
__device__ __forceinline__ float weight_at(const Raw<S, G>& raw, int j) {
  if constexpr (S == WeightStore::remainder) return joined_at(raw.w, raw.rest, j);
  return Raw<S, G>::kWide ? __uint_as_float(raw.w[j]) : bf16_at(raw.w, j);
}

// x, which the compiler then keeps in a register instead of computing it again and again.
__device__ __forceinline__ uint32_t kept(uint32_t x) {
  asm("" : "+r"(x));
  return x;
}

// What is the same for every element.
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
  const char* tables;
  StepConstants c;
  DrawShared draws;
  uint32_t first_draw;  // the counter of element 0
  uint32_t lane;
  uint32_t offset;  // of the lane's first element in a tile
};
__device__ __forceinline__ uint32_t offset_of(uint32_t lane) {
  return lane / kLanes * kGroup + lane % kLanes * kRun;
}
__device__ __forceinline__ uint32_t end_of_whole(const AdamwCall& call) {
  return static_cast<uint32_t>(call.end) / kTile * kTile;
}

struct Elements {
  float m[kEach], v[kEach], w[kEach];
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
__device__ __forceinline__ bool update(const Place& p, const Raw<S, G>& raw, Elements& x) {
  const StepConstants& c = p.c;
  const Decoding of_m = decoding_of(p.tables, raw.meta_m, c.log2_beta1);
  const Decoding of_v = decoding_of(p.tables, raw.meta_v, c.log2_beta2);
  float bad = 0;
#pragma unroll
  for (int first = 0; first < kEach; first += 4) {
    float size[4], inverse[4];
#pragma unroll
    for (int j = first; j < first + 4; ++j) {
      const uint32_t sign = (raw.m[j / 4] << (24 - j % 4 * 8)) & kSign;
      const float m = of_m.value(log2_of_code<false>(p.tables, p.lane, raw.m[j / 4], j % 4));
      const float v = of_v.value(log2_of_code<true>(p.tables, p.lane, raw.v[j / 4], j % 4));
      const float g = gradient_at(raw, j);
      x.m[j] = __fmaf_rn(g, c.g_of_m, __uint_as_float(__float_as_uint(m) ^ sign));
      x.v[j] = __uint_as_float(kept(__float_as_uint(__fmaf_rn(g * c.gg_of_v, g, v))));
      size[j - first] = __fmaf_rn(fast_sqrt(x.v[j]), c.size_of_v, c.size_eps);
    }
    invert_four(size, inverse);
#pragma unroll
    for (int j = first; j < first + 4; ++j) {
      const float old = weight_at(raw, j);
      const float decayed = __fmaf_rn(old, c.minus_decay, old);
      x.w[j] = __fmaf_rn(-x.m[j], inverse[j - first], decayed);
    }
    bad = __fmaf_rn(x.w[first], x.w[first + 1], bad);
    bad = __fmaf_rn(x.w[first + 2], x.w[first + 3], bad);
  }
  return of_m.far | of_v.far | !(fabsf(bad) < __uint_as_float(kF32Inf));
}

template <WeightStore S>
__device__ __forceinline__ Place place_of(const AdamwCall& call, const RoundKeys& keys,
                                          const char* tables, const AdamwConstants& k) {
  const uint32_t lane = kept(threadIdx.x % 32);
  Place p{.call = &call,
          .keys = &keys,
          .tables = tables,
          .c = step_constants(k),
          .draws = {},
          .first_draw = static_cast<uint32_t>(call.origin / 4),
          .lane = lane,
          .offset = kept(offset_of(lane))};
  if constexpr (S == WeightStore::stochastic) {
    p.draws = draw_shared(keys, static_cast<uint32_t>(call.origin >> 34), *call.attempt);
  }
  return p;
}

}  // namespace octet::cuda
