// The step with moments of f32 or bf16, by the exact formulas: two runs of four elements a thread,
// so that the lanes of a warp lie side by side in f32 and in 16 bits alike: what is not a whole
// sector of memory costs as much as one. The types are the same for the whole launch, so branching
// on them is cheap.
#include <algorithm>

#include "backends/cuda/kernels/adamw/adamw_any.cuh"
#include "backends/cuda/kernels/adamw/adamw_copy.cuh"

namespace octet::cuda {
namespace {

constexpr int kEach = 8;
constexpr int kRun = kWideRun;
constexpr int kThreads = 256;
constexpr int kNextRun = kThreads * kRun;  // from one run of a thread to its other
constexpr int kChunk = kThreads * kEach;   // of a block

// Where a thread's runs begin; the second may be behind the end.
struct Runs {
  int64_t first;
  bool both;
};

// Two runs as they are stored; those of 16-bit values leave half of each unused.
struct Raw {
  uint4 run[2];
};

__device__ __forceinline__ Raw load_raw(Dtype dtype, const void* from, const Runs& at) {
  Raw raw{};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (r == 1 && !at.both) break;
    const int64_t i = at.first + r * kNextRun;
    if (dtype == Dtype::f32) {
      raw.run[r] = *reinterpret_cast<const uint4*>(static_cast<const float*>(from) + i);
    } else {
      const uint2 x = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(from) + i);
      raw.run[r] = make_uint4(x.x, x.y, 0, 0);
    }
  }
  return raw;
}
__device__ __forceinline__ void store_raw(Dtype dtype, void* to, const Runs& at, const Raw& raw) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (r == 1 && !at.both) break;
    const int64_t i = at.first + r * kNextRun;
    if (dtype == Dtype::f32) {
      *reinterpret_cast<uint4*>(static_cast<float*>(to) + i) = raw.run[r];
    } else {
      *reinterpret_cast<uint2*>(static_cast<uint16_t*>(to) + i) =
          make_uint2(raw.run[r].x, raw.run[r].y);
    }
  }
}

__device__ __forceinline__ uint32_t word_of(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}
__device__ __forceinline__ uint16_t half_word_of(const Raw& raw, int j) {
  return static_cast<uint16_t>(word_of(raw.run[j / kRun], j % kRun / 2) >> (j % 2 * 16));
}
__device__ __forceinline__ void unpack_values(Dtype dtype, const Raw& raw, float (&x)[kEach]) {
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if (dtype == Dtype::f32) {
      x[j] = __uint_as_float(word_of(raw.run[j / kRun], j % kRun));
    } else {
      const uint16_t bits = half_word_of(raw, j);
      x[j] = dtype == Dtype::bf16 ? to_float<Dtype::bf16>(bits) : to_float<Dtype::fp16>(bits);
    }
  }
}
__device__ __forceinline__ Raw pack_half_words(const uint32_t (&x)[kEach]) {
  return {{make_uint4(x[0] | x[1] << 16, x[2] | x[3] << 16, 0, 0),
           make_uint4(x[4] | x[5] << 16, x[6] | x[7] << 16, 0, 0)}};
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

// The random words of both runs.
__device__ __forceinline__ void draw(const AdamwCall& call, const RandomStream& stream,
                                     const Runs& at, uint32_t (&words)[kEach]) {
  const PhiloxKey key{static_cast<uint32_t>(stream.name) ^ stream.seed,
                      static_cast<uint32_t>(stream.name >> 32)};
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    const auto counter = static_cast<uint64_t>(call.origin + at.first + block * kNextRun) / 4;
    const PhiloxBlock four = philox(key, counter, stream.step);
#pragma unroll
    for (int j = 0; j < 4; ++j) words[block * 4 + j] = four.word[j];
  }
}

template <Moment M>
__device__ __forceinline__ void store_moments(const AdamwCall& call, const Runs& at,
                                              const float (&x)[kEach]) {
  constexpr UpdateDraw kDraw = M == Moment::first ? UpdateDraw::first : UpdateDraw::second;
  const MomentCoding coding = coding_of<Formats::all, M>(call);
  void* to = M == Moment::first ? call.m.to : call.v.to;
  if (coding.dtype == Dtype::f32) {
    float stored[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) stored[j] = stored_moment(x[j]);
    return store_raw(Dtype::f32, to, at, pack_values(Dtype::f32, stored));
  }
  uint32_t random[kEach] = {};
  if (coding.stochastic) draw(call, stream_of<kDraw>(call), at, random);
  uint32_t halves[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) halves[j] = moment_bf16(coding, x[j], random[j]);
  store_raw(Dtype::bf16, to, at, pack_half_words(halves));
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

__device__ __forceinline__ void store_weights(const AdamwCall& call, const Runs& at,
                                              const float (&x)[kEach]) {
  if (call.p.store == WeightStore::remainder) {
    uint32_t hi[kEach], lo[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const MasterBits parts = split_master(x[j]);
      hi[j] = parts.hi, lo[j] = static_cast<uint16_t>(parts.lo);
    }
    store_raw(Dtype::bf16, call.w_to, at, pack_half_words(hi));
    return store_raw(Dtype::bf16, call.master_to, at, pack_half_words(lo));
  }
  if (call.p.store == WeightStore::stochastic) {
    uint32_t random[kEach], halves[kEach];
    draw(call, stream_of<UpdateDraw::weight>(call), at, random);
#pragma unroll
    for (int j = 0; j < kEach; ++j) halves[j] = stochastic_bf16(x[j], random[j]);
    return store_raw(Dtype::bf16, call.w_to, at, pack_half_words(halves));
  }
  if (call.p.store == WeightStore::master) {
    store_raw(Dtype::f32, call.master_to, at, pack_values(Dtype::f32, x));
  }
  store_raw(call.p.w, call.w_to, at, pack_values(call.p.w, x));
}

__global__ void __launch_bounds__(kThreads) update_wide(const __grid_constant__ AdamwCall call) {
  if (*call.found_nonfinite != 0) {
    copy_states(call);
    return;
  }
  const AdamwConstants k = constants_of(call);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kChunk;
  int64_t i = call.begin + static_cast<int64_t>(blockIdx.x) * kChunk + threadIdx.x * kRun;
  for (; i < call.end; i += stride) {
    const Runs at{i, i + kNextRun < call.end};
    const bool beside = call.p.store == WeightStore::remainder;
    const Raw raw_g = load_raw(call.p.g, call.g, at);
    const Raw raw_m = load_raw(call.p.m.dtype, call.m.from, at);
    const Raw raw_v = load_raw(call.p.v.dtype, call.v.from, at);
    Raw raw_w{}, raw_master{};
    if (call.p.store != WeightStore::master) raw_w = load_raw(call.p.w, call.w_from, at);
    if (call.master_from != nullptr) {
      raw_master = load_raw(beside ? Dtype::bf16 : Dtype::f32, call.master_from, at);
    }
    float g[kEach], m[kEach], v[kEach], w[kEach];
    unpack_values(call.p.g, raw_g, g);
    unpack_values(call.p.m.dtype, raw_m, m);
    unpack_values(call.p.v.dtype, raw_v, v);
    load_weights(call, raw_w, raw_master, w);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const AdamwElement next = adamw_element(k, {w[j], m[j], v[j]}, g[j]);
      w[j] = next.w, m[j] = first_beside(next.m, next.v), v[j] = next.v;
    }
    store_weights(call, at, w);
    store_moments<Moment::first>(call, at, m);
    store_moments<Moment::second>(call, at, v);
  }
}

}  // namespace

void launch_adamw_wide(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  const int64_t wanted = ceil_div(call.end - call.begin, kChunk);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(wanted, int64_t{n_sm} * 16));
  update_wide<<<blocks, kThreads, 0, stream>>>(call);
  check_launch("adamw_step");
}

}  // namespace octet::cuda
