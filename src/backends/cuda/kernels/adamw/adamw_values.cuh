// How the step's kernels read and write N consecutive elements of types that are the same for a
// whole launch, so that branching on them is cheap; random words; a search by a warp.
// Addresses of runs of several are multiples of their bytes.
#pragma once

#include "backends/cuda/kernels/adamw/adamw.h"
#include "backends/cuda/kernels/common/element.cuh"
#include "math/moment.h"

namespace octet::cuda {

// As they are stored: a word each of f32, half a word each of 16 bits.
template <int N>
using Run = Pack<uint32_t, N>;

template <int N>
__device__ __forceinline__ Run<N> load_run(Dtype dtype, const void* from, int64_t i) {
  if (dtype == Dtype::f32) return load_pack<N>(static_cast<const uint32_t*>(from) + i);
  Run<N> run{};
  const auto* at = static_cast<const uint16_t*>(from) + i;
  if constexpr (N == 1) {
    run.at[0] = *at;
  } else {
    const auto pairs = load_pack<N / 2>(reinterpret_cast<const uint32_t*>(at));
#pragma unroll
    for (int j = 0; j < N / 2; ++j) run.at[j] = pairs.at[j];
  }
  return run;
}
template <int N>
__device__ __forceinline__ void store_run(Dtype dtype, void* to, int64_t i, const Run<N>& run) {
  if (dtype == Dtype::f32) return store_pack<N>(static_cast<uint32_t*>(to) + i, run);
  auto* at = static_cast<uint16_t*>(to) + i;
  if constexpr (N == 1) {
    *at = static_cast<uint16_t>(run.at[0]);
  } else {
    Pack<uint32_t, N / 2> pairs;
#pragma unroll
    for (int j = 0; j < N / 2; ++j) pairs.at[j] = run.at[j];
    store_pack<N / 2>(reinterpret_cast<uint32_t*>(at), pairs);
  }
}
template <int N>
__device__ __forceinline__ uint16_t half_of(const Run<N>& run, int j) {
  return static_cast<uint16_t>(run.at[j / 2] >> (j % 2 * 16));
}
template <int N>
__device__ __forceinline__ float value_of(Dtype dtype, const Run<N>& run, int j) {
  if (dtype == Dtype::f32) return __uint_as_float(run.at[j]);
  const uint16_t bits = half_of(run, j);
  return dtype == Dtype::bf16 ? to_float<Dtype::bf16>(bits) : to_float<Dtype::fp16>(bits);
}
// Into a run of zeros.
template <int N>
__device__ __forceinline__ void put_half(Run<N>& run, int j, uint32_t bits) {
  run.at[j / 2] |= bits << (j % 2 * 16);
}

// The words of stochastic weights (math/adamw.h, base/philox.h), four at a time: the same bits with
// what every block of one step shares made once.
inline constexpr uint32_t kPhiloxMul0 = 0xD2511F53u, kPhiloxMul1 = 0xCD9E8D57u;

// What the first rounds make of the counter's three upper words, which a launch has in common.
struct DrawShared {
  uint32_t second_lo, second_hi, third_hi;  // terms of the second and third round
};
__device__ __forceinline__ DrawShared draw_shared(const RoundKeys& keys, uint32_t upper_counter,
                                                  uint32_t step) {
  const uint64_t first = static_cast<uint64_t>(kPhiloxMul1) * step;
  const uint32_t word = static_cast<uint32_t>(first >> 32) ^ upper_counter ^ keys.lo[0];
  const uint64_t second = static_cast<uint64_t>(kPhiloxMul0) * word;
  return {.second_lo = static_cast<uint32_t>(first) ^ keys.lo[1],
          .second_hi = static_cast<uint32_t>(second >> 32) ^ keys.hi[1],
          .third_hi = static_cast<uint32_t>(second) ^ keys.hi[2]};
}

// philox of {counter, upper_counter, step, 0}.
__device__ __forceinline__ PhiloxBlock draw_block(const RoundKeys& keys, const DrawShared& shared,
                                                  uint32_t counter) {
  const uint64_t first = static_cast<uint64_t>(kPhiloxMul0) * counter;
  const uint64_t second =
      static_cast<uint64_t>(kPhiloxMul1) * (static_cast<uint32_t>(first >> 32) ^ keys.hi[0]);
  uint32_t a = static_cast<uint32_t>(second >> 32) ^ shared.second_lo;
  uint32_t b = static_cast<uint32_t>(second);
  uint32_t c = static_cast<uint32_t>(first) ^ shared.second_hi;
  uint32_t d = 0;
#pragma unroll
  for (int round = 2; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kPhiloxMul0) * a;
    const uint64_t p1 = static_cast<uint64_t>(kPhiloxMul1) * c;
    a = static_cast<uint32_t>(p1 >> 32) ^ b ^ keys.lo[round];
    c = static_cast<uint32_t>(p0 >> 32) ^ (round == 2 ? shared.third_hi : d ^ keys.hi[round]);
    b = static_cast<uint32_t>(p1);
    d = static_cast<uint32_t>(p0);
  }
  return {{a, b, c, d}};
}

// The words of elements i to i + N; i is a multiple of 4 where there are several.
template <int N>
__device__ __forceinline__ Run<N> draw(const RandomStream& stream, int64_t i) {
  Run<N> words;
  const auto at = static_cast<uint64_t>(i);
  if constexpr (N == 1) {
    words.at[0] = stream.bits(at);
  } else {
#pragma unroll
    for (int j = 0; j < N; j += 4) {
      const PhiloxBlock four = stream.block(at / 4 + static_cast<uint64_t>(j / 4));
#pragma unroll
      for (int k = 0; k < 4; ++k) words.at[j + k] = four.word[k];
    }
  }
  return words;
}

// A weight with what lies beside it.
struct WeightPlace {
  WeightStore store;
  Dtype dtype;
  const void *from, *rest_from;
  void *to, *rest_to;
};
__device__ __forceinline__ WeightPlace weight_of(const AdamwCall& c) {
  return {c.p.store, c.p.w, c.w_from, c.master_from, c.w_to, c.master_to};
}
// A remainder lies in the halves behind those of the weight.
template <int N>
__device__ __forceinline__ Run<N> load_weights(const WeightPlace& p, int64_t i) {
  if (p.store == WeightStore::master) return load_run<N>(Dtype::f32, p.rest_from, i);
  Run<N> run = load_run<N>(p.dtype, p.from, i);
  if (p.store != WeightStore::remainder) return run;
  const Run<N> rest = load_run<N>(Dtype::i16, p.rest_from, i);
  if constexpr (N == 1) {
    put_half(run, 1, rest.at[0]);
  } else {
#pragma unroll
    for (int j = 0; j < N / 2; ++j) run.at[N / 2 + j] = rest.at[j];
  }
  return run;
}
template <int N>
__device__ __forceinline__ float weight_at(const WeightPlace& p, const Run<N>& run, int j) {
  if (p.store != WeightStore::remainder)
    return value_of(p.store == WeightStore::master ? Dtype::f32 : p.dtype, run, j);
  return join_master({half_of(run, j), static_cast<int16_t>(half_of(run, N + j))});
}
// words: of stochastic ones.
template <int N>
__device__ __forceinline__ void store_weights(const WeightPlace& p, int64_t i, const float (&x)[N],
                                              const Run<N>& words) {
  Run<N> w{}, rest{};
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (p.store == WeightStore::remainder) {
      const MasterBits parts = split_master(x[j]);
      put_half(w, j, parts.hi), put_half(rest, j, static_cast<uint16_t>(parts.lo));
    } else if (p.store == WeightStore::stochastic) {
      put_half(w, j, stochastic_bf16(x[j], words.at[j]));
    } else {
      if (p.store == WeightStore::master) rest.at[j] = __float_as_uint(x[j]);
      if (p.dtype == Dtype::f32) w.at[j] = __float_as_uint(x[j]);
      if (p.dtype == Dtype::bf16) put_half(w, j, from_float<Dtype::bf16>(x[j]));
      if (p.dtype == Dtype::fp16) put_half(w, j, from_float<Dtype::fp16>(x[j]));
    }
  }
  store_run(p.dtype, p.to, i, w);
  if (p.store == WeightStore::remainder) store_run(Dtype::i16, p.rest_to, i, rest);
  if (p.store == WeightStore::master) store_run(Dtype::f32, p.rest_to, i, rest);
}
// A moment of f32 or bf16.
template <int N>
__device__ __forceinline__ void store_moments(const MomentCoding& coding, void* to, int64_t i,
                                              const float (&x)[N], const Run<N>& words) {
  Run<N> run{};
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (coding.dtype == Dtype::f32)
      run.at[j] = __float_as_uint(stored_moment(x[j]));
    else
      put_half(run, j, moment_bf16(coding, x[j], words.at[j]));
  }
  store_run(coding.dtype, to, i, run);
}

// The last i below n with first[i] <= x, where first[0] is. By the whole warp.
__device__ __forceinline__ uint32_t last_reached(const uint32_t* first, uint32_t n, uint32_t x) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t at = 0;
  while (n > 1) {
    const uint32_t step = (n + 31) / 32, probe = lane * step;
    const bool is_reached = probe < n && first[at + probe] <= x;
    const uint32_t last = __popc(__ballot_sync(~0u, is_reached)) - 1;
    at += last * step;
    n = min(step, n - last * step);
  }
  return at;
}

}  // namespace octet::cuda
