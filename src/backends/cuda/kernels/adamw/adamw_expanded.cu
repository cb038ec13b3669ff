// The step with both moments expanded E4M3 in groups of 128 and fast powers: what nearly every run
// has. It is made to need few instructions, since in a training step the clock is low.
//
// A warp takes four groups at a time, while the next four are on their way (adamw_tile.cuh). Tiles
// with anything unusual (NaN, Inf, a negative v, magnitudes near the ends of f32, no learning rate)
// take step_group instead, before anything of them is written.
#include <algorithm>
#include <type_traits>

#include "backends/cuda/kernels/adamw/adamw_amax.cuh"
#include "backends/cuda/kernels/adamw/adamw_copy.cuh"
#include "backends/cuda/kernels/adamw/adamw_many.h"
#include "backends/cuda/kernels/adamw/adamw_store.cuh"
#include "backends/cuda/kernels/common/early_start.cuh"

namespace octet::cuda {
namespace {

__device__ __forceinline__ AmaxPlace gathered(const AdamwCall& call) {
  return {&call.gathered->amax, &call.gathered->flag};
}
// Every thread of every block calls it, after the block's work.
__device__ __forceinline__ void give_amax(const AdamwCall& call) {
  wait_for_previous();
  if (call.amax == nullptr) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  GatheredAmax& all = *call.gathered;
  if (atomicInc(&all.n_ended, gridDim.x - 1) != gridDim.x - 1) return;
  if (call.origin - call.p.first + call.end != call.p.n) return;
  __threadfence();
  *call.amax = atomicExch(&all.amax, 0u);
  *call.flag = __ldcg(&all.flag);
  all.flag = 0;
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
  // Elements [begin, end), which another function has stored.
  __device__ __forceinline__ void add_groups(const AdamwCall& call, uint32_t begin, uint32_t end) {
    if (call.amax == nullptr) return;
    note_weights(call, gathered(call), call.w_to, {begin + threadIdx.x % 32, end, 32});
  }
  // The whole warp calls it.
  __device__ __forceinline__ void note(const AdamwCall& call) const {
    if (call.amax == nullptr) return;
    if constexpr (S == WeightStore::plain) return note_amax(gathered(call), top, false);
    const uint32_t both = __vmaxu2(top & 0x7FFF7FFFu, signed_top);
    note_amax(gathered(call), max(both << 16, both & 0xFFFF0000u), false);
  }
};

template <WeightStore S, Dtype G>
__global__ void __launch_bounds__(kThreads<S>, 1)
    step_tiles(const __grid_constant__ AdamwCall call, const __grid_constant__ RoundKeys keys) {
  extern __shared__ __align__(16) char shared[];
  start_next();
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
    if (call.amax != nullptr) note_weights(call, gathered(call), call.w_from, at);
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
  if (tile == end && tile < call.end) {
    step_last_tile<S, G, TopWeight<S>>(call, keys, shared).note(call);
  }
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
  if (call.is_beside_last) {
    launch_early(kernel, {blocks, kThreads<S>, kBytes}, stream, call, round_keys(random));
  } else {
    kernel<<<blocks, kThreads<S>, kBytes, stream>>>(call, round_keys(random));
    check_launch("adamw_step");
  }
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

}  // namespace

AdamwCall slice_of(const AdamwCall& call, int64_t first, int64_t n) {
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

void launch_adamw_expanded(const AdamwCall& call, int n_sm, cudaStream_t stream) {
  for (int64_t first = 0; first < call.end; first += kMostRowElements) {
    AdamwCall part = slice_of(call, first, std::min(call.end - first, kMostRowElements));
    if (call.end != call.p.n) part.amax = nullptr;
    if (call.p.g == Dtype::bf16) {
      launch_tiles_of<Dtype::bf16>(part, n_sm, stream);
    } else {
      launch_tiles_of<Dtype::f32>(part, n_sm, stream);
    }
  }
}

}  // namespace octet::cuda
