// The amax of the new weight, for those who quantize it next: AdamwCall's amax and flag, which a
// launch before has cleared. A maximum has no order: the same bits for any schedule.
#pragma once

#include "backends/cuda/kernels/update_any.cuh"

namespace octet::cuda {

// A thread's part of the weight's amax joins: the whole warp calls it.
__device__ __forceinline__ void note_amax(const AdamwCall& call, uint32_t top, bool bad) {
  top = __reduce_max_sync(~0u, top);
  bad = __any_sync(~0u, bad);
  if (threadIdx.x % 32 != 0) return;
  if (top > *call.amax) atomicMax(call.amax, top);  // it only grows
  if (bad) *call.flag = 1;
}
__device__ __forceinline__ void join_weight(float w, uint32_t& top, bool& bad) {
  const uint32_t magnitude = __float_as_uint(w) & kF32Magnitude;
  bad |= magnitude >= kF32Inf;
  top = max(top, magnitude < kF32Inf ? magnitude : 0u);
}
// Weights from `begin` on in steps of `stride`, those of one lane.
static __device__ __noinline__ void note_weights(const AdamwCall& call, const void* weights,
                                                 int64_t begin, int64_t end, int64_t stride) {
  uint32_t top = 0;
  bool bad = false;
  for (int64_t i = begin; i < end; i += stride)
    join_weight(load_wide(call.p.w, weights, i), top, bad);
  __syncwarp();
  note_amax(call, top, bad);
}

}  // namespace octet::cuda
