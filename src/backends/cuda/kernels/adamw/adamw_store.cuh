// A tile's update and how it is stored.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_update.cuh"

namespace octet::cuda {

__device__ __forceinline__ void note_top(const AdamwCall& call, uint32_t top) {
  Top{top}.note(&call.gathered->amax, &call.gathered->flag);
}
// The largest magnitude among a lane's new weights, where it is asked for: bits of two bf16 side by
// side, or of one f32. As patterns the largest is that of a negative weight where there is one, as
// signed numbers that of a positive one: no sign need be taken off first.
template <WeightStore S>
struct TopWeight {
  uint32_t top = 0, signed_top = 0;

  __device__ __forceinline__ void add(uint32_t word) {
    if constexpr (S == WeightStore::plain) {
      top = max(top, word & kF32Magnitude);
    } else {
      top = __vmaxu2(top, word);
      signed_top = __vmaxs2(signed_top, word);
    }
  }
  // Elements [begin, end), which another function has stored.
  __device__ __forceinline__ void add_groups(const AdamwCall& call, uint32_t begin, uint32_t end) {
    if (call.amax != nullptr) note_weights(call, call.w_to, {begin + threadIdx.x % 32, end, 32});
  }
  // The whole warp calls it.
  __device__ __forceinline__ void note(const AdamwCall& call) const {
    if (call.amax == nullptr) return;
    if constexpr (S == WeightStore::plain) return note_top(call, top);
    const uint32_t both = __vmaxu2(top & 0x7FFF7FFFu, signed_top);
    note_top(call, max(both << 16, both & 0xFFFF0000u));
  }
};
// For those who want nothing of the new weights.
struct NoTop {
  __device__ __forceinline__ void add(uint32_t) {}
  __device__ __forceinline__ void add_groups(const AdamwCall&, uint32_t, uint32_t) {}
};

// A run of finite weights from element i on.
template <WeightStore S, typename Top>
__device__ __forceinline__ void store_weights(const Place& p, uint32_t i, const float* w,
                                              Top& top) {
  const auto at = static_cast<uint64_t>(i);
  uint32_t bits[kRun], hi[kRun / 2], rest[kRun / 2];
#pragma unroll
  for (int j = 0; j < kRun; ++j) bits[j] = __float_as_uint(w[j]);
#pragma unroll
  for (int j = 0; j < kRun; j += 4) {
    PhiloxBlock words{};
    if constexpr (S == WeightStore::stochastic) {
      words = draw_block(*p.keys, p.draws, p.first_draw + i / 4 + static_cast<uint32_t>(j / 4));
    }
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      const uint32_t a = bits[j + k], b = bits[j + k + 1];
      uint32_t& to = hi[(j + k) / 2];
      if constexpr (S == WeightStore::remainder) {
        to = __byte_perm(a + 0x8000u, b + 0x8000u, 0x7632);
        rest[(j + k) / 2] = __byte_perm(a, b, 0x5410);
      } else if constexpr (S == WeightStore::stochastic) {
        to = __byte_perm(a + (words.word[k] >> 16), b + (words.word[k + 1] >> 16), 0x7632);
      } else {
        to = narrow2<Dtype::bf16>(w[j + k], w[j + k + 1]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < (S == WeightStore::plain ? kRun : kRun / 2); ++j)
    top.add(S == WeightStore::plain ? bits[j] : hi[j]);
  if constexpr (S != WeightStore::plain) store_words<4>(p.call->w_to, at * 2, hi);
  if constexpr (S == WeightStore::remainder) store_words<4>(p.call->master_to, at * 2, rest);
  if constexpr (S == WeightStore::master) store_words<8>(p.call->master_to, at * 4, bits);
  if constexpr (S == WeightStore::plain) store_words<8>(p.call->w_to, at * 4, bits);
}

// How many of four powers of v go by sums: so that neither the unit of powers nor the issue of
// instructions waits for the other.
template <WeightStore S>
inline constexpr int kBySums = S == WeightStore::stochastic ? 0 : 1;

__device__ __forceinline__ void store_codes(const MomentPlace& to, uint32_t i, uint2 codes) {
  *reinterpret_cast<uint2*>(static_cast<uint8_t*>(to.to) + i) = codes;
}
// A run of second moments in FP16 with a scale.
__device__ __forceinline__ void store_scaled(const AdamwCall& call, uint32_t i,
                                             const float (&v)[kRun]) {
  const float inverse = 1.0f / scale_of_v(call);
  const auto words = draw<kRun>(store_stream(call), call.origin + i);
  Run<kRun> run{};
#pragma unroll
  for (int j = 0; j < kRun; ++j) put_half(run, j, store_fp16(v[j] * inverse, words.at[j], true));
  store_run(Dtype::fp16, call.v.to, i, run);
}

static __device__ __noinline__ void step_each_group(const AdamwCall& call, uint32_t begin,
                                                    uint32_t end) {
  for (uint32_t i = begin; i < end; i += kMomentGroup)
    step_group<Formats::ieee>(call, i, kMomentGroup);
}

// Calls `ahead` when raw is no longer needed; `top` sees the new weights. Of a tile that is not
// whole, lanes whose group is not there repeat the first group's work and write nothing.
template <bool kWhole, Codec C, WeightStore S, Dtype G, typename Top, typename Ahead>
__device__ __forceinline__ void step_tile(const Place& p, const Raw<C, S, G>& raw, uint32_t tile,
                                          Top& top, const Ahead& ahead) {
  constexpr int kLanes = kLanesOf<C>;
  const bool second = (p.lane & kLanes / 2) != 0;
  Elements<C> x;
  const bool odd = update(p, raw, x);
  ahead();
  const uint32_t end = kWhole ? tile + kTileOf<C> : static_cast<uint32_t>(p.call->end);
  Encoding mine;
  if (!settle(p, x, odd, mine)) {
    step_each_group(*p.call, tile, end);
    return top.add_groups(*p.call, tile, end);
  }
  const uint32_t i = tile + p.offset;
  const MomentPlace &m = p.call->m, &v = p.call->v;
  if constexpr (C == Codec::expanded) {
    const Powers of_m = powers_of(mine, 0), of_v = powers_of(mine, kLanes / 2);
    if (!kWhole && i >= end) return;
#pragma unroll
    for (int run = 0; run < 2; ++run) {
      const uint32_t at = i + static_cast<uint32_t>(run) * kNextRun<C>;
      store_weights<S>(p, at, x.w + run * kRun, top);
      store_codes(m, at, encode_m(of_m, x.m + run * kRun));
      store_codes(v, at, encode_v<kBySums<S>>(of_v, x.v + run * kRun));
    }
  } else {
    const uint32_t meta_m = __shfl_sync(~0u, mine.meta, 0, kLanes);
    const uint32_t meta_v = __shfl_sync(~0u, mine.meta, kLanes / 2, kLanes);
    store_weights<S>(p, i, x.w, top);
    store_codes(m, i, encode_codes<Moment::first>(p.call->p.m, x.m, meta_m));
    if constexpr (C == Codec::codes) {
      store_codes(v, i, encode_codes<Moment::second>(p.call->p.v, x.v, meta_v));
    } else if constexpr (C == Codec::fp16) {
      store_scaled(*p.call, i, x.v);
    } else {
      store_words<kRun>(v.to, uint64_t{i} * 4, reinterpret_cast<const uint32_t*>(x.v));
    }
  }
  if (p.lane % (kBothCoded<C> ? kLanes / 2 : kLanes) == 0)
    (second ? v : m).meta_to[i / kMomentGroup] = mine.meta;
}

// The tile behind the whole ones. Called, so that the registers of the others' loop are its own.
template <WeightStore S, Dtype G, typename Top>
__device__ __noinline__ Top step_last_tile(const AdamwCall& call, const RoundKeys& keys,
                                           const char* tables) {
  constexpr Codec kC = Codec::expanded;
  const Place p = place_of<kC, S>(call, keys, tables, constants_of(call));
  const uint32_t begin = end_of_whole<kC>(call), i = begin + p.offset;
  Raw<kC, S, G> raw;
  raw.load(call, i < call.end ? i : begin + p.offset % kMomentGroup);
  Top top;
  step_tile<false>(p, raw, begin, top, [] {});
  __syncwarp();
  return top;
}

}  // namespace octet::cuda
