// Random words by blocks, a skipped step's copies, launches, a search by a warp, and the amax of
// the new weight, for those who quantize it next: a maximum has no order, so it has the same bits
// for any schedule.
#pragma once

#include <type_traits>

#include "backends/cuda/kernels/adamw/adamw_group.cuh"
#include "backends/cuda/kernels/common/early_start.cuh"

namespace octet::cuda {

// philox of {counter, upper_counter, step, 0} (base/philox.h) with the rounds' keys made before.
__device__ __forceinline__ PhiloxBlock draw_block(const RoundKeys& keys, uint32_t counter,
                                                  uint32_t upper_counter, uint32_t step) {
  uint32_t a = counter, b = upper_counter, c = step, d = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * a, p1 = uint64_t{0xCD9E8D57u} * c;
    a = static_cast<uint32_t>(p1 >> 32) ^ b ^ keys.lo[round];
    c = static_cast<uint32_t>(p0 >> 32) ^ d ^ keys.hi[round];
    b = static_cast<uint32_t>(p1), d = static_cast<uint32_t>(p0);
  }
  return {{a, b, c, d}};
}

// Elements [begin, end) by the whole grid.
template <typename T>
__device__ void copy_elements(const void* from, void* to, int64_t begin, int64_t end) {
  if (from == to || to == nullptr) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t i = begin + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < end; i += stride) static_cast<T*>(to)[i] = static_cast<const T*>(from)[i];
}
static __device__ __noinline__ void copy_states(const AdamwCall& call) {
  const auto copy = [&](Dtype dtype, const void* from, void* to) {
    if (dtype == Dtype::f32) return copy_elements<uint32_t>(from, to, call.begin, call.end);
    if (is_coded(dtype)) return copy_elements<uint8_t>(from, to, call.begin, call.end);
    copy_elements<uint16_t>(from, to, call.begin, call.end);
  };
  copy(call.p.w, call.w_from, call.w_to);
  copy(call.p.store == WeightStore::remainder ? Dtype::bf16 : Dtype::f32, call.master_from,
       call.master_to);
  copy(call.p.m.dtype, call.m.from, call.m.to);
  copy(call.p.v.dtype, call.v.from, call.v.to);
  // The new metadata of m may lie where the old of v do: both are read before one is written.
  const int64_t last = (call.end + call.p.group - 1) / call.p.group;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t i = call.begin / call.p.group + static_cast<int64_t>(blockIdx.x) * blockDim.x;
  for (i += threadIdx.x; i < last; i += stride) {
    const uint32_t m = call.m.meta_to != nullptr ? call.m.meta_from[i] : 0;
    const uint32_t v = call.v.meta_to != nullptr ? call.v.meta_from[i] : 0;
    if (call.m.meta_to != nullptr) call.m.meta_to[i] = m;
    if (call.v.meta_to != nullptr) call.v.meta_to[i] = v;
  }
}

// A thread's part of the weight's amax: bits of the largest finite magnitude, and whether another
// was there.
struct Top {
  uint32_t top = 0;
  bool bad = false;

  __device__ __forceinline__ void join(float w) {
    const uint32_t magnitude = __float_as_uint(w) & kF32Magnitude;
    bad |= magnitude >= kF32Inf;
    top = max(top, magnitude < kF32Inf ? magnitude : 0u);
  }
  // The whole warp calls it.
  __device__ __forceinline__ void note(const AdamwCall& call) {
    note(&call.gathered->amax, &call.gathered->flag);
  }
  __device__ __forceinline__ void note(uint32_t* amax, uint8_t* flag) {
    top = __reduce_max_sync(~0u, top);
    bad = __any_sync(~0u, bad);
    if (threadIdx.x % 32 != 0) return;
    if (top > __ldcg(amax)) atomicMax(amax, top);  // it only grows
    if (bad) *flag = 1;
  }
};
struct Steps {
  int64_t begin, end, stride;
};
// Weights of one lane.
static __device__ __noinline__ void note_weights(const AdamwCall& call, const void* weights,
                                                 const Steps& at) {
  Top top;
  for (int64_t i = at.begin; i < at.end; i += at.stride) {
    float w[1];
    values_of(call.p.w, load_run<1>(call.p.w, weights, i), w);
    top.join(w[0]);
  }
  __syncwarp();
  top.note(call);
}

// The largest magnitude among a lane's new weights, where it is wanted: bits of two bf16 side by
// side, or of one f32. As patterns the largest is that of a negative weight where there is one, as
// signed numbers that of a positive one: no sign need be taken off first.
template <WeightStore S, bool kWanted>
struct TopWeight {
  uint32_t top = 0, signed_top = 0;

  __device__ __forceinline__ void add(uint32_t word) {
    if constexpr (!kWanted) return;
    if constexpr (S == WeightStore::plain) {
      top = max(top, word & kF32Magnitude);
    } else {
      top = __vmaxu2(top, word);
      signed_top = __vmaxs2(signed_top, word);
    }
  }
  __device__ __forceinline__ uint32_t bits() const {
    if constexpr (S == WeightStore::plain) return top;
    const uint32_t both = __vmaxu2(top & 0x7FFF7FFFu, signed_top);
    return max(both << 16, both & 0xFFFF0000u);
  }
};

// Every thread of every block calls it, after the block's work.
__device__ __forceinline__ void give_amax(const AdamwCall& call) {
  wait_for_previous();
  if (call.amax == nullptr) return;
  __syncthreads();
  GatheredAmax& all = *call.gathered;
  if (threadIdx.x != 0 || !count_block(&all.n_ended, gridDim.x)) return;
  if (call.origin - call.p.first + call.end != call.p.n) return;
  *call.amax = atomicExch(&all.amax, 0u);
  *call.flag = __ldcg(&all.flag);
  all.flag = 0;
}

// A step that changes nothing.
static __device__ __noinline__ void keep_all(const AdamwCall& call) {
  const int64_t n_threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (call.amax != nullptr) note_weights(call, call.w_from, {thread, call.end, n_threads});
  copy_states(call);
  give_amax(call);
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

// kernel<<<grid>>>(call), which may run beside the launch before it where that is a step too.
template <typename Call>
void launch_step(void (*kernel)(Call), const EarlyGrid& grid, cudaStream_t stream,
                 const Call& call) {
  if constexpr (std::is_same_v<Call, AdamwCall>) {
    if (call.is_beside_last) return launch_early(kernel, grid, stream, call);
  }
  kernel<<<grid.blocks, grid.threads, grid.shared_bytes, stream>>>(call);
  check_launch("adamw_step");
}

}  // namespace octet::cuda
