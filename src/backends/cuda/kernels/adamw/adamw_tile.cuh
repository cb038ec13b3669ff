// What a lane reads of a tile of the step with expanded moments, and how it has the next one
// brought while it works.
#pragma once

#include "backends/cuda/kernels/adamw/adamw.h"
#include "backends/cuda/kernels/adamw/adamw_codes.cuh"
#include "backends/cuda/kernels/adamw/adamw_words.cuh"

namespace octet::cuda {

// A lane's elements of a tile as they are read; the meaning of words is that of a run after
// another.
template <WeightStore S, Dtype G>
struct Raw {
  static constexpr bool kWide = S == WeightStore::master || S == WeightStore::plain;
  static constexpr int kGradWords = G == Dtype::f32 ? kRun : kRun / 2;  // of a run
  static constexpr int kWeightWords = kWide ? kRun : kRun / 2;
  static constexpr int kRestWords = S == WeightStore::remainder ? kRun / 2 : 0;
  uint32_t m[4], v[4], meta_m, meta_v;
  uint32_t g[2 * kGradWords], w[2 * kWeightWords], rest[2 * kRestWords + 1];
};

template <WeightStore S>
__device__ __forceinline__ const void* old_weights(const AdamwCall& call) {
  return S == WeightStore::master ? call.master_from : call.w_from;
}

// i: this lane's first element.
template <WeightStore S, Dtype G>
__device__ __forceinline__ void load(const AdamwCall& call, uint32_t i, Raw<S, G>& raw) {
  using R = Raw<S, G>;
  const auto at = static_cast<uint64_t>(i);
#pragma unroll
  for (int run = 0; run < 2; ++run) {
    const auto next = static_cast<uint64_t>(run * kNextRun);
    constexpr uint64_t kGradBytes = R::kGradWords / 2, kWeightBytes = R::kWeightWords / 2;
    load_words<2>(call.m.from, at + next, raw.m + 2 * run);
    load_words<2>(call.v.from, at + next, raw.v + 2 * run);
    load_words<R::kGradWords>(call.g, at * kGradBytes + next * kGradBytes,
                              raw.g + run * R::kGradWords);
    load_words<R::kWeightWords>(old_weights<S>(call), at * kWeightBytes + next * kWeightBytes,
                                raw.w + run * R::kWeightWords);
    if constexpr (R::kRestWords != 0) {
      load_words<R::kRestWords>(call.master_from, at * 2 + next * 2,
                                raw.rest + run * R::kRestWords);
    }
  }
  raw.meta_m = call.m.meta_from[i / kGroup];
  raw.meta_v = call.v.meta_from[i / kGroup];
}

// Into shared memory, past the registers.
template <int kBytes>
__device__ __forceinline__ void bring(char* to, const char* from) {
  const auto place = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(place), "l"(from));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :
                 : "r"(place), "l"(from), "n"(kBytes));
  }
}
__device__ __forceinline__ void end_of_bringing() {
  asm volatile("cp.async.commit_group;" : :);
}
// Waits for all that was brought before the last end_of_bringing but one.
__device__ __forceinline__ void wait_for_brought() {
  asm volatile("cp.async.wait_group 1;" : : : "memory");
}

// A lane's part of the next tile waits in shared memory, in two places by turns, so that a whole
// tile's work lies between its being asked for and its being read. Only the lane itself reads it:
// sixteen bytes of it beside those of the next lane, and no barrier.
template <WeightStore S, Dtype G, int kThreads>
class Staging {
  using R = Raw<S, G>;
  static constexpr int kStep = kThreads * 16;  // from one sixteen bytes of a lane to the next
  static constexpr int kSteps = 2 + (R::kGradWords + R::kWeightWords + R::kRestWords) / 2;
  static constexpr int kPlaceBytes = kSteps * kStep;

 public:
  static constexpr int kBytes = 2 * kPlaceBytes;

  // memory: kBytes, shared.
  __device__ __forceinline__ explicit Staging(char* memory) : mine_(memory + threadIdx.x * 16) {}

  // i: this lane's first element.
  __device__ __forceinline__ void announce(const AdamwCall& call, uint32_t i) {
    char* to = mine_ + ahead_;
    to = bring_runs<2>(call.m.from, i, to);
    to = bring_runs<2>(call.v.from, i, to);
    to = bring_runs<R::kGradWords>(call.g, i, to);
    to = bring_runs<R::kWeightWords>(old_weights<S>(call), i, to);
    if constexpr (R::kRestWords != 0) bring_runs<R::kRestWords>(call.master_from, i, to);
    meta_m_ = call.m.meta_from[i / kGroup];
    meta_v_ = call.v.meta_from[i / kGroup];
  }

  // What was announced last; announces what follows it, the lane's first element there being
  // `next`, where `goes_on`.
  __device__ __forceinline__ void take(const AdamwCall& call, bool goes_on, uint32_t next, R& raw) {
    raw.meta_m = meta_m_, raw.meta_v = meta_v_;
    const char* from = mine_ + ahead_;
    ahead_ = kPlaceBytes - ahead_;
    if (goes_on) announce(call, next);
    end_of_bringing();
    wait_for_brought();
    from = read<4>(from, raw.m);
    from = read<4>(from, raw.v);
    from = read<2 * R::kGradWords>(from, raw.g);
    from = read<2 * R::kWeightWords>(from, raw.w);
    if constexpr (R::kRestWords != 0) read<2 * R::kRestWords>(from, raw.rest);
  }

 private:
  // Two runs of kWords words each.
  template <int kWords>
  static __device__ __forceinline__ char* bring_runs(const void* all, uint32_t i, char* to) {
    constexpr int kElementBytes = kWords * 4 / kRun, kPiece = kWords == 2 ? 8 : 16;
    const char* from = static_cast<const char*>(all) + static_cast<uint64_t>(i) * kElementBytes;
#pragma unroll
    for (int run = 0; run < 2; ++run) {
#pragma unroll
      for (int k = 0; k < kWords * 4; k += kPiece) {
        const int n = run * kWords * 4 + k;  // bytes before it
        bring<kPiece>(to + n / 16 * kStep + n % 16, from + run * kNextRun * kElementBytes + k);
      }
    }
    return to + kWords / 2 * kStep;
  }
  template <int kWords>
  static __device__ __forceinline__ const char* read(const char* from, uint32_t* to) {
#pragma unroll
    for (int k = 0; k < kWords; k += 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(from + k / 4 * kStep);
      to[k] = x.x, to[k + 1] = x.y, to[k + 2] = x.z, to[k + 3] = x.w;
    }
    return from + kWords / 4 * kStep;
  }

  char* mine_;
  int ahead_ = 0;  // from mine_ to what was announced last
  uint32_t meta_m_ = 0, meta_v_ = 0;
};

}  // namespace octet::cuda
