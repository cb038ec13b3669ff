// The amax of the new weight, for those who quantize it next. A maximum has no order: the same bits
// for any schedule.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_any.cuh"

namespace octet::cuda {

// Where a launch gathers it: bits of the largest finite magnitude, and whether another was there.
struct AmaxPlace {
  uint32_t* amax;
  uint8_t* flag;
};

// A thread's part of the weight's amax joins: the whole warp calls it.
__device__ __forceinline__ void note_amax(const AmaxPlace& place, uint32_t top, bool bad) {
  top = __reduce_max_sync(~0u, top);
  bad = __any_sync(~0u, bad);
  if (threadIdx.x % 32 != 0) return;
  if (top > __ldcg(place.amax)) atomicMax(place.amax, top);  // it only grows
  if (bad) *place.flag = 1;
}
__device__ __forceinline__ void join_weight(float w, uint32_t& top, bool& bad) {
  const uint32_t magnitude = __float_as_uint(w) & kF32Magnitude;
  bad |= magnitude >= kF32Inf;
  top = max(top, magnitude < kF32Inf ? magnitude : 0u);
}
struct Steps {
  int64_t begin, end, stride;
};
// Those of one lane.
static __device__ __noinline__ void note_weights(const AdamwCall& call, const AmaxPlace& place,
                                                 const void* weights, const Steps& at) {
  uint32_t top = 0;
  bool bad = false;
  for (int64_t i = at.begin; i < at.end; i += at.stride)
    join_weight(load_wide(call.p.w, weights, i), top, bad);
  __syncwarp();
  note_amax(place, top, bad);
}

}  // namespace octet::cuda
