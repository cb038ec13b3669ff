// The step with expanded E4M3 moments: a tile's update and how it is stored.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_place.cuh"

namespace octet::cuda {

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
        to = from_float<Dtype::bf16>(w[j + k]) |
             (static_cast<uint32_t>(from_float<Dtype::bf16>(w[j + k + 1])) << 16);
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

static __device__ __noinline__ void step_each_group(const AdamwCall& call, uint32_t begin,
                                                    uint32_t end) {
  for (uint32_t i = begin; i < end; i += kGroup) step_group<Formats::ieee>(call, i, kGroup);
}

// How many of four powers of v go by sums: so that neither the unit of powers nor the issue of
// instructions waits for the other.
template <WeightStore S>
inline constexpr int kBySums = S == WeightStore::stochastic ? 0 : 1;

// Calls `ahead` when raw is no longer needed; `top` sees the new weights. Of a tile that is not
// whole, lanes whose group is not there repeat the first group's work and write nothing.
template <bool kWhole, WeightStore S, Dtype G, typename Top, typename Ahead>
__device__ __forceinline__ void step_tile(const Place& p, const Raw<S, G>& raw, uint32_t tile,
                                          Top& top, const Ahead& ahead) {
  const bool second = (p.lane & 4) != 0;
  Elements x;
  const bool odd = update(p, raw, x);
  ahead();
  const uint32_t most = __float_as_uint(second ? p.c.most_v : 0x1p100f);
  const uint32_t end = kWhole ? tile + kTile : static_cast<uint32_t>(p.call->end);
  Extent extent = group_extent<true>(x.m, x.v, second);
  Choice choice = choice_of(extent);
  const bool zeros = (extent.amin == 0) & (extent.amax != 0);
  if (__any_sync(kWholeWarp, odd | zeros | is_far(extent, most) | is_doubtful(choice))) {
    if (__any_sync(kWholeWarp, zeros)) extent = group_extent<false>(x.m, x.v, second);
    if (__any_sync(kWholeWarp, odd | is_far(extent, most))) {
      step_each_group(*p.call, tile, end);
      return top.add_groups(*p.call, tile, end);
    }
    choice = exact_choice_of(extent);
  }
  // Not the magnitudes that the extents were made of, held in as many registers.
#pragma unroll
  for (int j = 0; j < kEach; ++j) x.m[j] = __uint_as_float(kept(__float_as_uint(x.m[j])));
  const Encoding mine = encoding_of(extent, choice);
  const Powers of_m = powers_of(mine, 0), of_v = powers_of(mine, 4);
  const uint32_t i = tile + p.offset;
  if (!kWhole && i >= end) return;
#pragma unroll
  for (int run = 0; run < 2; ++run) {
    const uint32_t at = i + static_cast<uint32_t>(run * kNextRun);
    const float *m = x.m + run * kRun, *v = x.v + run * kRun;
    store_weights<S>(p, at, x.w + run * kRun, top);
    const uint32_t codes_m[2] = {encode_m(of_m, m), encode_m(of_m, m + 4)};
    const uint32_t codes_v[2] = {encode_v<kBySums<S>>(of_v, v), encode_v<kBySums<S>>(of_v, v + 4)};
    store_words<2>(p.call->m.to, at, codes_m);
    store_words<2>(p.call->v.to, at, codes_v);
  }
  if (p.lane % 4 == 0) (second ? p.call->v : p.call->m).meta_to[i / kGroup] = mine.meta;
}

// The tile behind the whole ones. Called, so that the registers of the others' loop are its own.
template <WeightStore S, Dtype G, typename Top>
__device__ __noinline__ Top step_last_tile(const AdamwCall& call, const RoundKeys& keys,
                                           const char* tables) {
  const Place p = place_of<S>(call, keys, tables, constants_of(call));
  const uint32_t begin = end_of_whole(call), i = begin + p.offset;
  Raw<S, G> raw;
  load(call, i < call.end ? i : begin + p.offset % kGroup, raw);
  Top top;
  step_tile<false>(p, raw, begin, top, [] {});
  __syncwarp();
  return top;
}

}  // namespace octet::cuda
