// How the step's kernels read and write N consecutive elements of types that are the same for a
// whole launch, so that branching on them is cheap; random words.
// Addresses of runs of several are multiples of their bytes.
#pragma once

#include "backends/cuda/kernels/adamw/adamw.h"
#include "backends/cuda/kernels/common/element.cuh"
#include "math/moment.h"

namespace octet::cuda {

// Stored values: a word each of f32, half a word each of 16 bits.
template <int N>
using Run = Pack<uint32_t, N>;
template <int N>
using Halves = std::conditional_t<N == 1, Pack<uint16_t, 1>, Pack<uint32_t, (N + 1) / 2>>;

template <int N>
__device__ __forceinline__ Run<N> load_run(Dtype dtype, const void* from, int64_t i) {
  if (dtype == Dtype::f32) return load_pack<N>(static_cast<const uint32_t*>(from) + i);
  const void* at = static_cast<const uint16_t*>(from) + i;
  const auto halves = *static_cast<const Halves<N>*>(at);
  Run<N> run{};
#pragma unroll
  for (int j = 0; j < (N + 1) / 2; ++j) run.at[j] = halves.at[j];
  return run;
}
template <int N>
__device__ __forceinline__ void store_run(Dtype dtype, void* to, int64_t i, const Run<N>& run) {
  if (dtype == Dtype::f32) return store_pack<N>(static_cast<uint32_t*>(to) + i, run);
  Halves<N> halves;
#pragma unroll
  for (int j = 0; j < (N + 1) / 2; ++j) halves.at[j] = run.at[j];
  void* at = static_cast<uint16_t*>(to) + i;
  *static_cast<Halves<N>*>(at) = halves;
}
template <int N>
__device__ __forceinline__ uint16_t half_of(const Run<N>& run, int j) {
  return static_cast<uint16_t>(run.at[j / 2] >> (j % 2 * 16));
}
// f.template operator()<D>(): asked once what all are, not element by element, which costs a third
// of the rate where moments are bf16.
template <typename F>
__device__ __forceinline__ void visit_type(Dtype dtype, F&& f) {
  dtype == Dtype::f32    ? f.template operator()<Dtype::f32>()
  : dtype == Dtype::bf16 ? f.template operator()<Dtype::bf16>()
                         : f.template operator()<Dtype::fp16>();
}
template <int N>
__device__ __forceinline__ void values_of(Dtype dtype, const Run<N>& run, float (&x)[N]) {
  visit_type(dtype, [&]<Dtype D>() {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (D == Dtype::f32)
        x[j] = __uint_as_float(run.at[j]);
      else
        x[j] = to_float<D>(half_of(run, j));
    }
  });
}
// Into a run of zeros.
template <int N>
__device__ __forceinline__ void put_half(Run<N>& run, int j, uint32_t bits) {
  run.at[j / 2] |= bits << (j % 2 * 16);
}
// Rounded to f32, bf16 or fp16.
template <int N>
__device__ __forceinline__ Run<N> run_of(Dtype dtype, const float (&x)[N]) {
  Run<N> run{};
  visit_type(dtype, [&]<Dtype D>() {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (D == Dtype::f32)
        run.at[j] = __float_as_uint(x[j]);
      else
        put_half(run, j, from_float<D>(x[j]));
    }
  });
  return run;
}
// FP16 with a scale (math/master.h).
struct ScaledFp16 {
  float inverse_scale;
  bool keeps_positive;
};
template <int N>
__device__ __forceinline__ void store_scaled(const ScaledFp16& how, void* to, int64_t i,
                                             const float* x, const Run<N>& words) {
  Run<N> run{};
#pragma unroll
  for (int j = 0; j < N; ++j)
    put_half(run, j, store_fp16(x[j] * how.inverse_scale, words.at[j], how.keeps_positive));
  store_run(Dtype::fp16, to, i, run);
}

// The words of elements i to i + N; i is a multiple of 4 where there are several.
template <int N>
__device__ __forceinline__ Run<N> draw(const RandomStream& stream, int64_t i) {
  const auto at = static_cast<uint64_t>(i);
  if constexpr (N == 1) return {stream.bits(at)};
  Run<N> words{};
#pragma unroll
  for (int j = 0; j < N; j += 4) {
    const PhiloxBlock four = stream.block(at / 4 + static_cast<uint64_t>(j / 4));
#pragma unroll
    for (int k = 0; k < 4; ++k) words.at[j + k] = four.word[k];
  }
  return words;
}

__device__ __forceinline__ RandomStream stream_of(const AdamwCall& call, UpdateDraw what) {
  return update_stream(call.p.stream, call.p.seed, *call.attempt, what);
}
// The second moment in FP16 is read by a scale, a power of two.
__device__ __forceinline__ float scale_of_v(const AdamwCall& call) {
  return __uint_as_float(*call.v.meta_from);
}
template <int N>
__device__ __forceinline__ void store_scaled_v(const AdamwCall& call, int64_t i, const float* v) {
  const Run<N> words = draw<N>(stream_of(call, UpdateDraw::second), call.origin + i);
  store_scaled({1.0f / scale_of_v(call), true}, call.v.to, i, v, words);
}

// A weight with what lies beside it.
struct WeightPlace {
  WeightStore store = WeightStore::plain;
  Dtype dtype = Dtype::f32;
  const void *from = nullptr, *rest_from = nullptr;
  void *to = nullptr, *rest_to = nullptr;
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
  if constexpr (N == 1) put_half(run, 1, rest.at[0]);
#pragma unroll
  for (int j = 0; j < N / 2; ++j) run.at[N / 2 + j] = rest.at[j];
  return run;
}
template <int N>
__device__ __forceinline__ void weights_of(const WeightPlace& p, const Run<N>& run, float (&x)[N]) {
  if (p.store != WeightStore::remainder)
    return values_of(p.store == WeightStore::master ? Dtype::f32 : p.dtype, run, x);
#pragma unroll
  for (int j = 0; j < N; ++j)
    x[j] = join_master({half_of(run, j), static_cast<int16_t>(half_of(run, N + j))});
}
// words: of stochastic ones.
template <int N>
__device__ __forceinline__ void store_weights(const WeightPlace& p, int64_t i, const float (&x)[N],
                                              const Run<N>& words) {
  Run<N> w{}, rest{};
  if (p.store == WeightStore::remainder) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const MasterBits parts = split_master(x[j]);
      put_half(w, j, parts.hi), put_half(rest, j, static_cast<uint16_t>(parts.lo));
    }
    store_run(Dtype::i16, p.rest_to, i, rest);
  } else if (p.store == WeightStore::stochastic) {
#pragma unroll
    for (int j = 0; j < N; ++j) put_half(w, j, stochastic_bf16(x[j], words.at[j]));
  } else {
    w = run_of(p.dtype, x);
    if (p.store == WeightStore::master) store_run(Dtype::f32, p.rest_to, i, run_of(Dtype::f32, x));
  }
  store_run(p.dtype, p.to, i, w);
}

// f.template operator()<n>(i) for n elements from i on: N at once, the last few one by one,
// by the whole grid.
template <int N, typename F>
__device__ __forceinline__ void for_runs(int64_t n, F&& f) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x * N;
  for (int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N; i < n; i += stride) {
    if (i + N <= n) {
      f.template operator()<N>(i);
    } else {
      for (int64_t j = i; j < n; ++j) f.template operator()<1>(j);
    }
  }
}

}  // namespace octet::cuda
