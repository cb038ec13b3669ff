// A skipped step: every result is a copy of its operand.
#pragma once

#include "backends/cuda/kernels/adamw/adamw.h"

namespace octet::cuda {

// Elements [begin, end) by the whole grid.
template <typename T>
__device__ void copy_elements(const void* from, void* to, int64_t begin, int64_t end) {
  if (from == to || to == nullptr) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t i = begin + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < end; i += stride) static_cast<T*>(to)[i] = static_cast<const T*>(from)[i];
}
// By width; dtype_bytes is the host's.
__device__ __forceinline__ void copy_values(Dtype dtype, const void* from, void* to,
                                            const AdamwCall& call) {
  switch (dtype) {
    case Dtype::f32:
      return copy_elements<uint32_t>(from, to, call.begin, call.end);
    case Dtype::bf16:
    case Dtype::fp16:
    case Dtype::i16:
      return copy_elements<uint16_t>(from, to, call.begin, call.end);
    default:
      return copy_elements<uint8_t>(from, to, call.begin, call.end);
  }
}
static __device__ __noinline__ void copy_states(const AdamwCall& call) {
  const bool remainder = call.p.store == WeightStore::remainder;
  copy_values(call.p.w, call.w_from, call.w_to, call);
  copy_values(remainder ? Dtype::i16 : Dtype::f32, call.master_from, call.master_to, call);
  copy_values(call.p.m.dtype, call.m.from, call.m.to, call);
  copy_values(call.p.v.dtype, call.v.from, call.v.to, call);
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

}  // namespace octet::cuda
