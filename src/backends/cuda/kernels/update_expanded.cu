// The step with both moments expanded E4M3 in groups of 128 and fast powers: what nearly every run
// has. It is made to need few instructions, since in a training step the clock is low.
//
// A warp takes four groups at a time, while the next four are on their way (update_tile.cuh). Tiles
// with anything unusual (NaN, Inf, a negative v, magnitudes near the ends of f32, no learning rate)
// take step_group instead, before anything of them is written.
#include <algorithm>

#include "backends/cuda/kernels/update_amax.cuh"
#include "backends/cuda/kernels/update_any.cuh"
#include "backends/cuda/kernels/update_codes.cuh"
#include "backends/cuda/kernels/update_copy.cuh"
#include "backends/cuda/kernels/update_draw.cuh"
#include "backends/cuda/kernels/update_tile.cuh"

namespace octet::cuda {
namespace {

// Whether tiles are staged in shared memory, which leaves registers for more warps, or wait in
// registers. Where more bytes come with an element, memory is what takes time, and gives 4 % more
// of them to the latter.
template <WeightStore S>
constexpr bool kStaged = S == WeightStore::stochastic;
template <WeightStore S>
constexpr int kThreads = kStaged<S> ? 640 : 512;     // one block to a multiprocessor
constexpr int64_t kMostElements = int64_t{1} << 31;  // of a launch

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

// What a warp knows of its launch.
struct Place {
  const AdamwCall& call;
  const RoundKeys& keys;
  const char* tables;
  StepConstants c;
  DrawShared draws;
  uint32_t first_draw;  // the counter of element 0
  uint32_t lane;
  uint32_t offset;  // of the lane's first element in a tile
  uint32_t end;     // of whole tiles
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

// The weight's amax while the blocks of a launch, or launches for the parts of a tensor, gather it;
// zeros again when the last block has given it away. Kernels of a process follow each other.
struct GatheredAmax {
  uint32_t amax, n_ended;
  uint8_t flag;
};
__device__ GatheredAmax g_gathered;

__device__ __forceinline__ AmaxPlace gathered() {
  return {&g_gathered.amax, &g_gathered.flag};
}
// Every thread of every block calls it, after the block's work.
__device__ __forceinline__ void give_amax(const AdamwCall& call) {
  if (call.amax == nullptr) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicInc(&g_gathered.n_ended, gridDim.x - 1) != gridDim.x - 1) return;
  if (call.origin - call.p.first + call.end != call.p.n) return;
  __threadfence();
  *call.amax = atomicExch(&g_gathered.amax, 0u);
  *call.flag = __ldcg(&g_gathered.flag);
  g_gathered.flag = 0;
}

// The largest magnitude among a lane's new weights: bits of two bf16 side by side, or of one f32.
// As patterns the largest is that of a negative weight where there is one, as signed numbers that
// of a positive one: no sign need be taken off first.
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
  // The whole warp calls it.
  __device__ __forceinline__ void note(const AdamwCall& call) const {
    if (call.amax == nullptr) return;
    if constexpr (S == WeightStore::plain) return note_amax(gathered(), top, false);
    const uint32_t both = __vmaxu2(top & 0x7FFF7FFFu, signed_top);
    note_amax(gathered(), max(both << 16, both & 0xFFFF0000u), false);
  }
};

// A run of finite weights from element i on.
template <WeightStore S>
__device__ __forceinline__ void store_weights(const Place& p, uint32_t i, const float* w,
                                              TopWeight<S>& top) {
  const auto at = static_cast<uint64_t>(i);
  uint32_t bits[kRun], hi[kRun / 2], rest[kRun / 2];
#pragma unroll
  for (int j = 0; j < kRun; ++j) bits[j] = __float_as_uint(w[j]);
#pragma unroll
  for (int j = 0; j < kRun; j += 4) {
    PhiloxBlock words{};
    if constexpr (S == WeightStore::stochastic) {
      words = draw_block(p.keys, p.draws, p.first_draw + i / 4 + static_cast<uint32_t>(j / 4));
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
  if constexpr (S != WeightStore::plain) store_words<4>(p.call.w_to, at * 2, hi);
  if constexpr (S == WeightStore::remainder) store_words<4>(p.call.master_to, at * 2, rest);
  if constexpr (S == WeightStore::master) store_words<8>(p.call.master_to, at * 4, bits);
  if constexpr (S == WeightStore::plain) store_words<8>(p.call.w_to, at * 4, bits);
}

__device__ __noinline__ void step_each_group(const AdamwCall& call, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; i += kGroup) step_group<Formats::ieee>(call, i, kGroup);
  if (call.amax == nullptr) return;
  note_weights(call, gathered(), call.w_to, {begin + threadIdx.x % 32, end, 32});
}

// How many of four powers of v go by sums: so that neither the unit of powers nor the issue of
// instructions waits for the other.
template <WeightStore S>
constexpr int kBySums = S == WeightStore::stochastic ? 0 : 1;

// Calls `ahead` when raw is no longer needed. Of a tile that is not whole, lanes whose group is not
// there repeat the first group's work and write nothing.
template <bool kWhole, WeightStore S, Dtype G, typename Ahead>
__device__ __forceinline__ void step_tile(const Place& p, const Raw<S, G>& raw, uint32_t tile,
                                          TopWeight<S>& top, const Ahead& ahead) {
  const bool second = (p.lane & 4) != 0;
  Elements x;
  const bool odd = update(p, raw, x);
  ahead();
  const uint32_t most = __float_as_uint(second ? p.c.most_v : 0x1p100f);
  const uint32_t end = kWhole ? tile + kTile : static_cast<uint32_t>(p.call.end);
  Extent extent = group_extent<true>(x.m, x.v, second);
  Choice choice = choice_of(extent);
  const bool zeros = (extent.amin == 0) & (extent.amax != 0);
  if (__any_sync(kWholeWarp, odd | zeros | is_far(extent, most) | is_doubtful(choice))) {
    if (__any_sync(kWholeWarp, zeros)) extent = group_extent<false>(x.m, x.v, second);
    if (__any_sync(kWholeWarp, odd | is_far(extent, most))) {
      return step_each_group(p.call, tile, end);
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
    store_words<2>(p.call.m.to, at, codes_m);
    store_words<2>(p.call.v.to, at, codes_v);
  }
  if (p.lane % 4 == 0) (second ? p.call.v : p.call.m).meta_to[i / kGroup] = mine.meta;
}

template <WeightStore S>
__device__ __forceinline__ Place place_of(const AdamwCall& call, const RoundKeys& keys,
                                          const char* tables, const AdamwConstants& k) {
  const uint32_t lane = kept(threadIdx.x % 32);
  Place p{.call = call,
          .keys = keys,
          .tables = tables,
          .c = step_constants(k),
          .draws = {},
          .first_draw = static_cast<uint32_t>(call.origin / 4),
          .lane = lane,
          .offset = kept(offset_of(lane)),
          .end = end_of_whole(call)};
  if constexpr (S == WeightStore::stochastic) {
    p.draws = draw_shared(keys, static_cast<uint32_t>(call.origin >> 34), *call.attempt);
  }
  return p;
}

// The tile that is not whole. Called, so that the registers of the others' loop are its own.
template <WeightStore S, Dtype G>
__device__ __noinline__ void step_last_tile(const AdamwCall& call, const RoundKeys& keys,
                                            const char* tables) {
  const Place p = place_of<S>(call, keys, tables, constants_of(call));
  const uint32_t i = p.end + p.offset;
  Raw<S, G> raw;
  load(call, i < call.end ? i : p.end + p.offset % kGroup, raw);
  TopWeight<S> top;
  step_tile<false>(p, raw, p.end, top, [] {});
  __syncwarp();
  top.note(call);
}

template <WeightStore S, Dtype G>
__global__ void __launch_bounds__(kThreads<S>, 1)
    step_tiles(const __grid_constant__ AdamwCall call, const __grid_constant__ RoundKeys keys) {
  extern __shared__ __align__(16) char shared[];
  const uint32_t end = end_of_whole(call), stride = gridDim.x * (kThreads<S> / 32) * kTile;
  uint32_t tile = (threadIdx.x / 32 * gridDim.x + blockIdx.x) * kTile;
  Staging<S, G, kThreads<S>> staging(shared + kTableBytes);
  Raw<S, G> raw;
  if (const uint32_t i = tile + offset_of(threadIdx.x % 32); tile < end) {
    if constexpr (kStaged<S>) {
      staging.announce(call, i);
      end_of_bringing();
    } else {
      load(call, i, raw);
    }
  }
  const AdamwConstants k = constants_of(call);
  const uint8_t found_nonfinite = *call.found_nonfinite;
  fill_tables(shared);
  __syncthreads();
  if (found_nonfinite != 0) {
    if constexpr (kStaged<S>) {
      end_of_bringing();
      wait_for_brought();
    }
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads<S> + threadIdx.x;
    const Steps at{thread, call.end, static_cast<int64_t>(gridDim.x) * kThreads<S>};
    if (call.amax != nullptr) note_weights(call, gathered(), call.w_from, at);
    copy_states(call);
    return give_amax(call);
  }
  const Place p = place_of<S>(call, keys, shared, k);
  TopWeight<S> top;
  for (; tile < end; tile += stride) {
    const bool goes_on = tile + stride < end;
    const uint32_t next = tile + stride + p.offset;
    if constexpr (kStaged<S>) staging.take(call, goes_on, next, raw);
    step_tile<true>(p, raw, tile, top, [&] {
      if (!kStaged<S> && goes_on) load(call, next, raw);
    });
  }
  top.note(call);
  if (tile == end && tile < call.end) step_last_tile<S, G>(call, keys, shared);
  give_amax(call);
}

template <WeightStore S, Dtype G>
void launch_tiles(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  const auto kernel = step_tiles<S, G>;
  constexpr int kBytes = kTableBytes + (kStaged<S> ? Staging<S, G, kThreads<S>>::kBytes : 0);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "adamw_step's shared memory");
  const int64_t tiles = ceil_div(call.end, int64_t{kTile});
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(tiles, n_sm));
  const RandomStream random = update_stream(call.p.stream, call.p.seed, 0, UpdateDraw::weight);
  kernel<<<blocks, kThreads<S>, kBytes, stream>>>(call, round_keys(random));
  check_launch("adamw_step");
}

template <Dtype G>
void launch_tiles_of(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  switch (call.p.store) {
    case WeightStore::remainder:
      return launch_tiles<WeightStore::remainder, G>(call, n_sm, stream);
    case WeightStore::stochastic:
      return launch_tiles<WeightStore::stochastic, G>(call, n_sm, stream);
    case WeightStore::master:
      return launch_tiles<WeightStore::master, G>(call, n_sm, stream);
    case WeightStore::plain:
      return launch_tiles<WeightStore::plain, G>(call, n_sm, stream);
  }
}

bool takes(const AdamwCall& call) {
  const AdamwParams& p = call.p;
  const auto expanded = [](const MomentParams& moment) {
    return moment.dtype == Dtype::e4m3 && moment.expand && !moment.stochastic;
  };
  const bool weight = p.store == WeightStore::plain ? p.w == Dtype::f32 : p.w == Dtype::bf16;
  return expanded(p.m) && expanded(p.v) && !p.exact && p.group == kGroup && weight &&
         (p.g == Dtype::bf16 || p.g == Dtype::f32) && is_aligned(call);
}

// The call of elements [first, first + n), at the places where these lie.
AdamwCall slice(const AdamwCall& call, int64_t first, int64_t n) {
  const auto ahead = [&]<typename T>(T* at, Dtype dtype) -> T* {
    using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
    return at == nullptr ? nullptr : static_cast<Byte*>(at) + first * dtype_bytes(dtype);
  };
  const Dtype rest = call.p.store == WeightStore::remainder ? Dtype::i16 : Dtype::f32;
  AdamwCall part = call;
  part.g = ahead(call.g, call.p.g);
  part.w_from = ahead(call.w_from, call.p.w), part.w_to = ahead(call.w_to, call.p.w);
  part.master_from = ahead(call.master_from, rest), part.master_to = ahead(call.master_to, rest);
  for (MomentPlace* at : {&part.m, &part.v}) {
    at->from = ahead(at->from, Dtype::e4m3), at->to = ahead(at->to, Dtype::e4m3);
    at->meta_from += first / kGroup, at->meta_to += first / kGroup;
  }
  part.origin = call.origin + first, part.begin = 0, part.end = n;
  return part;
}

}  // namespace

int64_t launch_adamw_expanded(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  const int64_t n = call.end / kGroup * kGroup;
  if (call.begin != 0 || n == 0 || !takes(call)) return 0;
  for (int64_t first = 0; first < n; first += kMostElements) {
    AdamwCall part = slice(call, first, std::min(n - first, kMostElements));
    if (n != call.end) part.amax = nullptr;
    if (call.p.g == Dtype::bf16) {
      launch_tiles_of<Dtype::bf16>(part, n_sm, stream);
    } else {
      launch_tiles_of<Dtype::f32>(part, n_sm, stream);
    }
  }
  return n;
}

}  // namespace octet::cuda
