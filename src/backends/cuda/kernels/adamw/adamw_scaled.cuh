// The second moment in FP16 with a scale: what it is read by and rounded with.
#pragma once

#include "backends/cuda/kernels/adamw/adamw.h"
#include "math/master.h"

namespace octet::cuda {

// A power of two.
__device__ __forceinline__ float scale_of_v(const AdamwCall& call) {
  return __uint_as_float(*call.v.meta_from);
}
// As store_scaled draws.
__device__ __forceinline__ RandomStream store_stream(const AdamwCall& call) {
  return {.name = call.p.stream, .seed = call.p.seed, .step = *call.attempt, .micro_batch = 0};
}

}  // namespace octet::cuda
