// A skipped step's copies, and the amax of the new weight, for those who quantize it next: a
// maximum has no order, so it has the same bits for any schedule.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_group.cuh"

namespace octet::cuda {

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
  for (int64_t i = at.begin; i < at.end; i += at.stride)
    top.join(value_of(call.p.w, load_run<1>(call.p.w, weights, i), 0));
  __syncwarp();
  top.note(&call.gathered->amax, &call.gathered->flag);
}

}  // namespace octet::cuda
