// Reads of a lane from a tile of the tile kernels, the fetch of the next one while it works, and
// its stores of the new weights.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_codec.cuh"
#include "backends/cuda/kernels/common/async_copy.cuh"

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
  // Starts of the words of v, gradient, weight and remainder, behind those of m.
  static constexpr int kV = kHalves / 2;
  static constexpr int kG = kV + (C == Codec::f32 ? kRun : C == Codec::fp16 ? kHalves : kV);
  static constexpr int kW = kG + (G == Dtype::f32 ? 2 * kHalves : kHalves);
  static constexpr int kRest = kW + (kWide ? 2 * kHalves : kHalves);
  static constexpr int kEnd = kRest + (S == WeightStore::remainder ? kHalves : 0);
  uint32_t words[kEnd], meta_m, meta_v;

  // f.template operator()<kN>(address, k) for each access: words k to k + kN. i: this lane's first
  // element.
  template <typename F>
  static __device__ __forceinline__ void each(const AdamwCall& call, uint32_t i, F&& f) {
    pieces<0, kV>(call.m.from, i, f);
    pieces<kV, kG>(call.v.from, i, f);
    pieces<kG, kW>(call.g, i, f);
    pieces<kW, kRest>(S == WeightStore::master ? call.master_from : call.w_from, i, f);
    if constexpr (kEnd > kRest) pieces<kRest, kEnd>(call.master_from, i, f);
  }
  __device__ __forceinline__ void load_meta(const AdamwCall& call, uint32_t i) {
    meta_m = call.m.meta_from[i / kMomentGroup];
    if constexpr (kBothCoded<C>) meta_v = call.v.meta_from[i / kMomentGroup];
  }
  __device__ __forceinline__ void load(const AdamwCall& call, uint32_t i) {
    each(call, i, [&]<int kN>(const char* from, int k) {
      const auto pack = load_pack<kN>(reinterpret_cast<const uint32_t*>(from));
#pragma unroll
      for (int j = 0; j < kN; ++j) words[k + j] = pack.at[j];
    });
    load_meta(call, i);
  }
  __device__ __forceinline__ float gradient(int j) const {
    return G == Dtype::f32 ? __uint_as_float(words[kG + j]) : bf16_at(words + kG, j);
  }
  __device__ __forceinline__ float weight(int j) const {
    if constexpr (kWide) return __uint_as_float(words[kW + j]);
    const float hi = bf16_at(words + kW, j);
    if constexpr (S != WeightStore::remainder) return hi;
    const auto both = static_cast<int32_t>(words[kRest + j / 2]);
    const int32_t lo = j % 2 == 0 ? static_cast<int16_t>(both) : both >> 16;
    return __uint_as_float(__float_as_uint(hi) + static_cast<uint32_t>(lo));
  }

 private:
  template <int kBegin, int kPast, typename F>
  static __device__ __forceinline__ void pieces(const void* all, uint32_t i, F& f) {
    constexpr int kWords = (kPast - kBegin) * kRun / kEachOf<C>;  // of a run
    constexpr int kBytes = kWords * 4 / kRun, kPiece = kWords < 4 ? kWords : 4;
    const char* from = static_cast<const char*>(all) + static_cast<uint64_t>(i) * kBytes;
#pragma unroll
    for (int k = 0; k < kPast - kBegin; k += kPiece) {
      const int run = k / kWords * static_cast<int>(kNextRun<C>) * kBytes;
      f.template operator()<kPiece>(from + run + k % kWords * 4, kBegin + k);
    }
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

// A lane's part of the next tile waits in shared memory, in two places by turns, so that a whole
// tile's work lies between its being asked for and its being read. Only the lane itself reads it:
// sixteen bytes of it beside those of the next lane, and no barrier.
template <typename R, int kThreads>
class Staging {
  static constexpr int kStep = kThreads * 16;  // from one sixteen bytes of a lane to the next
  static constexpr int kPlaceBytes = R::kRest / 4 * kStep;  // without a remainder

 public:
  static constexpr int kBytes = 2 * kPlaceBytes;

  // memory: kBytes, shared.
  __device__ __forceinline__ explicit Staging(char* memory) : mine_(memory + threadIdx.x * 16) {}

  // i: this lane's first element.
  __device__ __forceinline__ void prefetch(const AdamwCall& call, uint32_t i) {
    R::each(call, i, [&]<int kN>(const char* from, int k) {
      bring<kN * 4>(mine_ + ahead_ + k / 4 * kStep + k % 4 * 4, from);
    });
    next_.load_meta(call, i);
  }

  // Takes what was prefetched last; prefetches what follows, the lane's first element there being
  // `next`, where `goes_on`.
  __device__ __forceinline__ void take(const AdamwCall& call, bool goes_on, uint32_t next, R& raw) {
    raw.meta_m = next_.meta_m, raw.meta_v = next_.meta_v;
    const char* from = mine_ + ahead_;
    ahead_ = kPlaceBytes - ahead_;
    if (goes_on) prefetch(call, next);
    end_group();
    wait_for_groups_but<1>();
#pragma unroll
    for (int k = 0; k < R::kRest; k += 4) {
      const auto pack = load_pack<4>(reinterpret_cast<const uint32_t*>(from + k / 4 * kStep));
#pragma unroll
      for (int j = 0; j < 4; ++j) raw.words[k + j] = pack.at[j];
    }
  }

 private:
  char* mine_;
  int ahead_ = 0;  // from mine_ to what was prefetched last
  R next_;         // its metadata alone
};

// A run of finite weights from element i on; step: that of their random words.
template <WeightStore S, typename Top>
__device__ __forceinline__ void store_weights(const AdamwCall& call, uint32_t step, uint32_t i,
                                              const float* w, Top& top) {
  const auto at = static_cast<uint64_t>(i);
  uint32_t bits[kRun], hi[kRun / 2], rest[kRun / 2];
#pragma unroll
  for (int j = 0; j < kRun; ++j) bits[j] = __float_as_uint(w[j]);
  PhiloxBlock words{};
#pragma unroll
  for (int j = 0; j < kRun; j += 2) {
    if (S == WeightStore::stochastic && j % 4 == 0) {
      words = draw_block(call.keys, static_cast<uint32_t>(call.origin >> 2) + (i + j) / 4,
                         static_cast<uint32_t>(call.origin >> 34), step);
    }
    const uint32_t a = bits[j], b = bits[j + 1];
    uint32_t& to = hi[j / 2];
    if constexpr (S == WeightStore::remainder) {
      to = __byte_perm(a + 0x8000u, b + 0x8000u, 0x7632);
      rest[j / 2] = __byte_perm(a, b, 0x5410);
    } else if constexpr (S == WeightStore::stochastic) {
      to = __byte_perm(a + (words.word[j % 4] >> 16), b + (words.word[j % 4 + 1] >> 16), 0x7632);
    } else {
      to = narrow2<Dtype::bf16>(w[j], w[j + 1]);
    }
  }
#pragma unroll
  for (int j = 0; j < (S == WeightStore::plain ? kRun : kRun / 2); ++j)
    top.add(S == WeightStore::plain ? bits[j] : hi[j]);
  if constexpr (S == WeightStore::plain) return store_words<8>(call.w_to, at * 4, bits);
  store_words<4>(call.w_to, at * 2, hi);
  if constexpr (S == WeightStore::remainder) store_words<4>(call.master_to, at * 2, rest);
  if constexpr (S == WeightStore::master) store_words<8>(call.master_to, at * 4, bits);
}

}  // namespace octet::cuda
