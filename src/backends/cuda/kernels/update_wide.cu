// The step with moments of f32 or bf16, by the exact formulas: eight elements a thread, sixteen
// bytes an access. The types are the same for the whole launch, so branching on them is cheap.
#include <algorithm>

#include "backends/cuda/kernels/update_any.cuh"
#include "backends/cuda/kernels/update_copy.cuh"

namespace octet::cuda {
namespace {

constexpr int kEach = 8;
constexpr int kThreads = 256;

// Eight values as they are stored; of 16-bit ones the second half is unused.
struct Raw {
  uint4 half[2];
};

__device__ __forceinline__ Raw load_raw(Dtype dtype, const void* from, int64_t i) {
  const auto* at = static_cast<const char*>(from) + i * (dtype == Dtype::f32 ? 4 : 2);
  Raw raw;
  raw.half[0] = *reinterpret_cast<const uint4*>(at);
  if (dtype == Dtype::f32) raw.half[1] = *reinterpret_cast<const uint4*>(at + 16);
  return raw;
}
__device__ __forceinline__ void store_raw(Dtype dtype, void* to, int64_t i, const Raw& raw) {
  auto* at = static_cast<char*>(to) + i * (dtype == Dtype::f32 ? 4 : 2);
  *reinterpret_cast<uint4*>(at) = raw.half[0];
  if (dtype == Dtype::f32) *reinterpret_cast<uint4*>(at + 16) = raw.half[1];
}

__device__ __forceinline__ uint32_t word_of(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}
__device__ __forceinline__ uint16_t half_word_of(const Raw& raw, int j) {
  return static_cast<uint16_t>(word_of(raw.half[0], j / 2) >> (j % 2 * 16));
}
__device__ __forceinline__ void unpack_values(Dtype dtype, const Raw& raw, float (&x)[kEach]) {
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if (dtype == Dtype::f32) {
      x[j] = __uint_as_float(word_of(raw.half[j / 4], j % 4));
    } else {
      const uint16_t bits = half_word_of(raw, j);
      x[j] = dtype == Dtype::bf16 ? to_float<Dtype::bf16>(bits) : to_float<Dtype::fp16>(bits);
    }
  }
}
__device__ __forceinline__ Raw pack_half_words(const uint32_t (&x)[kEach]) {
  return {{make_uint4(x[0] | x[1] << 16, x[2] | x[3] << 16, x[4] | x[5] << 16, x[6] | x[7] << 16),
           make_uint4(0, 0, 0, 0)}};
}
__device__ __forceinline__ Raw pack_values(Dtype dtype, const float (&x)[kEach]) {
  if (dtype == Dtype::f32) {
    const auto bits = [&](int j) { return __float_as_uint(x[j]); };
    return {{make_uint4(bits(0), bits(1), bits(2), bits(3)),
             make_uint4(bits(4), bits(5), bits(6), bits(7))}};
  }
  uint32_t halves[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    halves[j] =
        dtype == Dtype::bf16 ? from_float<Dtype::bf16>(x[j]) : from_float<Dtype::fp16>(x[j]);
  }
  return pack_half_words(halves);
}

// The random words of elements i to i + 7, i a multiple of 8.
__device__ __forceinline__ void draw(const RandomStream& stream, int64_t i,
                                     uint32_t (&words)[kEach]) {
  const PhiloxKey key{static_cast<uint32_t>(stream.name) ^ stream.seed,
                      static_cast<uint32_t>(stream.name >> 32)};
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    const auto counter = static_cast<uint64_t>(i) / 4 + static_cast<uint64_t>(block);
    const PhiloxBlock four = philox(key, counter, stream.step);
#pragma unroll
    for (int j = 0; j < 4; ++j) words[block * 4 + j] = four.word[j];
  }
}

template <Moment M>
__device__ __forceinline__ void store_moments(const AdamwCall& call, int64_t i,
                                              const float (&x)[kEach]) {
  constexpr UpdateDraw kDraw = M == Moment::first ? UpdateDraw::first : UpdateDraw::second;
  const MomentCoding coding = coding_of<Formats::all, M>(call);
  void* to = M == Moment::first ? call.m.to : call.v.to;
  if (coding.dtype == Dtype::f32) return store_raw(Dtype::f32, to, i, pack_values(Dtype::f32, x));
  uint32_t random[kEach] = {};
  if (coding.stochastic) draw(stream_of<kDraw>(call), i, random);
  uint32_t halves[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) halves[j] = moment_bf16(coding, x[j], random[j]);
  store_raw(Dtype::bf16, to, i, pack_half_words(halves));
}

__device__ __forceinline__ void load_weights(const AdamwCall& call, const Raw& w, const Raw& master,
                                             float (&x)[kEach]) {
  if (call.p.store == WeightStore::master) return unpack_values(Dtype::f32, master, x);
  if (call.p.store != WeightStore::remainder) return unpack_values(call.p.w, w, x);
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    x[j] = join_master({half_word_of(w, j), static_cast<int16_t>(half_word_of(master, j))});
  }
}

__device__ __forceinline__ void store_weights(const AdamwCall& call, int64_t i,
                                              const float (&x)[kEach]) {
  if (call.p.store == WeightStore::remainder) {
    uint32_t hi[kEach], lo[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const MasterBits parts = split_master(x[j]);
      hi[j] = parts.hi, lo[j] = static_cast<uint16_t>(parts.lo);
    }
    store_raw(Dtype::bf16, call.w_to, i, pack_half_words(hi));
    return store_raw(Dtype::bf16, call.master_to, i, pack_half_words(lo));
  }
  if (call.p.store == WeightStore::stochastic) {
    uint32_t random[kEach], halves[kEach];
    draw(stream_of<UpdateDraw::weight>(call), i, random);
#pragma unroll
    for (int j = 0; j < kEach; ++j) halves[j] = stochastic_bf16(x[j], random[j]);
    return store_raw(Dtype::bf16, call.w_to, i, pack_half_words(halves));
  }
  if (call.p.store == WeightStore::master) {
    store_raw(Dtype::f32, call.master_to, i, pack_values(Dtype::f32, x));
  }
  store_raw(call.p.w, call.w_to, i, pack_values(call.p.w, x));
}

__global__ void __launch_bounds__(kThreads) step_wide(const __grid_constant__ AdamwCall call) {
  if (*call.found_nonfinite != 0) {
    copy_states(call);
    return;
  }
  const AdamwConstants k = constants_of(call);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kEach;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (i = call.begin + i * kEach; i < call.end; i += stride) {
    const bool beside = call.p.store == WeightStore::remainder;
    const Raw raw_g = load_raw(call.p.g, call.g, i);
    const Raw raw_m = load_raw(call.p.m.dtype, call.m.from, i);
    const Raw raw_v = load_raw(call.p.v.dtype, call.v.from, i);
    Raw raw_w{}, raw_master{};
    if (call.p.store != WeightStore::master) raw_w = load_raw(call.p.w, call.w_from, i);
    if (call.master_from != nullptr) {
      raw_master = load_raw(beside ? Dtype::bf16 : Dtype::f32, call.master_from, i);
    }
    float g[kEach], m[kEach], v[kEach], w[kEach];
    unpack_values(call.p.g, raw_g, g);
    unpack_values(call.p.m.dtype, raw_m, m);
    unpack_values(call.p.v.dtype, raw_v, v);
    load_weights(call, raw_w, raw_master, w);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const AdamwElement next = adamw_element(k, {w[j], m[j], v[j]}, g[j]);
      w[j] = next.w, m[j] = next.m, v[j] = next.v;
    }
    store_weights(call, i, w);
    store_moments<Moment::first>(call, i, m);
    store_moments<Moment::second>(call, i, v);
  }
}

}  // namespace

int64_t launch_adamw_wide(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  const int64_t n = (call.end - call.begin) / kEach * kEach;
  const auto wide = [](Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::bf16; };
  if (n == 0 || !wide(call.p.m.dtype) || !wide(call.p.v.dtype) || !is_aligned(call)) return 0;
  AdamwCall part = call;
  part.end = call.begin + n;
  const int64_t wanted = ceil_div(n, kEach * kThreads);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(wanted, int64_t{n_sm} * 16));
  step_wide<<<blocks, kThreads, 0, stream>>>(part);
  check_launch("adamw_step");
  return n;
}

}  // namespace octet::cuda
