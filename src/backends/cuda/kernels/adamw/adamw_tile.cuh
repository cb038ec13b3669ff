// What a lane reads of a tile of the tile kernels, and how it has the next one brought while it
// works.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_codec.cuh"

namespace octet::cuda {

template <Codec C>
inline constexpr uint32_t kTileOf = 32 * kEachOf<C>;  // elements of a warp
template <Codec C>
inline constexpr uint32_t kNextRun = kLanesOf<C>* kRun;  // from one run of a lane to its other

template <int N>
__device__ __forceinline__ void store_words(void* to, uint64_t byte, const uint32_t* from) {
  Pack < uint32_t, N<4 ? N : 4> pack;
#pragma unroll
  for (int i = 0; i < N; i += 4) {
#pragma unroll
    for (int j = 0; j < N && j < 4; ++j) pack.at[j] = from[i + j];
    store_pack(reinterpret_cast<uint32_t*>(static_cast<char*>(to) + byte + i * 4), pack);
  }
}
// Element j of packed bf16.
__device__ __forceinline__ float bf16_at(const uint32_t* words, int j) {
  return __uint_as_float(j % 2 == 0 ? words[j / 2] << 16 : words[j / 2] & 0xFFFF0000u);
}

// A lane's elements of a tile as they are read, one run after another.
template <Codec C, WeightStore S, Dtype G>
struct Raw {
  static constexpr bool kWide = S == WeightStore::master || S == WeightStore::plain;
  static constexpr int kHalves = kEachOf<C> / 2;  // words of 16-bit values
  uint32_t m[kHalves / 2], v[C == Codec::f32 ? kRun : C == Codec::fp16 ? kHalves : kHalves / 2];
  uint32_t g[G == Dtype::f32 ? 2 * kHalves : kHalves], w[kWide ? 2 * kHalves : kHalves];
  uint32_t rest[S == WeightStore::remainder ? kHalves : 1], meta_m, meta_v;
  static constexpr int kPacked =  // words of what is staged, which has no remainder
      static_cast<int>(sizeof(m) + sizeof(v) + sizeof(g) + sizeof(w)) / 4;

  // f(address of element 0, its words here) for each.
  template <typename F>
  __device__ __forceinline__ void each(const AdamwCall& call, F&& f) {
    f(call.m.from, m), f(call.v.from, v), f(call.g, g);
    f(S == WeightStore::master ? call.master_from : call.w_from, w);
    if constexpr (S == WeightStore::remainder) f(call.master_from, rest);
  }
  // f(where words k to k + kWords of a lane's N are, k), two or four words at a time.
  template <int N, typename F>
  static __device__ __forceinline__ void for_pieces(const void* all, uint32_t i, F&& f) {
    constexpr int kWords = N / kRunsOf<C>, kBytes = kWords * 4 / kRun;
    constexpr int kPiece = kWords < 4 ? kWords : 4;
    const char* from = static_cast<const char*>(all) + static_cast<uint64_t>(i) * kBytes;
#pragma unroll
    for (int k = 0; k < N; k += kPiece) {
      const int run = k / kWords * static_cast<int>(kNextRun<C>) * kBytes;
      f.template operator()<kPiece>(from + run + k % kWords * 4, k);
    }
  }
  // i: this lane's first element.
  __device__ __forceinline__ void load_meta(const AdamwCall& call, uint32_t i) {
    meta_m = call.m.meta_from[i / kMomentGroup];
    if constexpr (kBothCoded<C>) meta_v = call.v.meta_from[i / kMomentGroup];
  }
  __device__ __forceinline__ void load(const AdamwCall& call, uint32_t i) {
    each(call, [&]<int N>(const void* all, uint32_t(&to)[N]) {
      for_pieces<N>(all, i, [&]<int kWords>(const char* from, int k) {
        const auto pack = load_pack<kWords>(reinterpret_cast<const uint32_t*>(from));
#pragma unroll
        for (int j = 0; j < kWords; ++j) to[k + j] = pack.at[j];
      });
    });
    load_meta(call, i);
  }
  __device__ __forceinline__ float gradient(int j) const {
    return G == Dtype::f32 ? __uint_as_float(g[j]) : bf16_at(g, j);
  }
  __device__ __forceinline__ float weight(int j) const {
    if constexpr (kWide) return __uint_as_float(w[j]);
    const float hi = bf16_at(w, j);
    if constexpr (S != WeightStore::remainder) return hi;
    const auto both = static_cast<int32_t>(rest[j / 2]);
    const int32_t lo = j % 2 == 0 ? static_cast<int16_t>(both) : both >> 16;
    return __uint_as_float(__float_as_uint(hi) + static_cast<uint32_t>(lo));
  }
};

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
template <typename R, int kThreads>
class Staging {
  static constexpr int kStep = kThreads * 16;  // from one sixteen bytes of a lane to the next
  static constexpr int kPlaceBytes = R::kPacked / 4 * kStep;

 public:
  static constexpr int kBytes = 2 * kPlaceBytes;

  // memory: kBytes, shared.
  __device__ __forceinline__ explicit Staging(char* memory) : mine_(memory + threadIdx.x * 16) {}

  // i: this lane's first element.
  __device__ __forceinline__ void prefetch(const AdamwCall& call, uint32_t i) {
    char* to = mine_ + ahead_;
    next_.each(call, [&]<int N>(const void* all, const uint32_t(&)[N]) {
      R::template for_pieces<N>(all, i, [&]<int kWords>(const char* from, int k) {
        bring<kWords * 4>(to + k / 4 * kStep + k % 4 * 4, from);
      });
      to += N / 4 * kStep;
    });
    next_.load_meta(call, i);
  }

  // What was prefetched last; prefetches what follows it, the lane's first element there being
  // `next`, where `goes_on`.
  __device__ __forceinline__ void take(const AdamwCall& call, bool goes_on, uint32_t next, R& raw) {
    raw.meta_m = next_.meta_m, raw.meta_v = next_.meta_v;
    const char* from = mine_ + ahead_;
    ahead_ = kPlaceBytes - ahead_;
    if (goes_on) prefetch(call, next);
    end_of_bringing();
    wait_for_brought();
    raw.each(call, [&]<int N>(const void*, uint32_t(&to)[N]) {
#pragma unroll
      for (int k = 0; k < N; k += 4) {
        const auto pack = load_pack<4>(reinterpret_cast<const uint32_t*>(from + k / 4 * kStep));
#pragma unroll
        for (int j = 0; j < 4; ++j) to[k + j] = pack.at[j];
      }
      from += N / 4 * kStep;
    });
  }

 private:
  char* mine_;
  int ahead_ = 0;  // from mine_ to what was prefetched last
  R next_;         // its metadata; the rest tells sizes
};

}  // namespace octet::cuda
