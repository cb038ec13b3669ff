// The rotation of a pair of elements, for the kernels that rotate.
#pragma once

#include <cuda_runtime.h>

#include "math/exact_functions.h"

namespace octet::cuda {

struct Rotation {
  float cosine, sine;
};

// A position's angle. Not inlined: its doubles would take registers from pairs under way.
inline __device__ __noinline__ Rotation rotation(int position, double frequency, float sign) {
  const SineCosine angle = sine_cosine_exact(static_cast<double>(position) * frequency);
  return {angle.cosine, sign * angle.sine};
}

__device__ __forceinline__ float2 rotated(const Rotation& rotation, float low, float high) {
  return make_float2(fmaf(-high, rotation.sine, low * rotation.cosine),
                     fmaf(low, rotation.sine, high * rotation.cosine));
}

}  // namespace octet::cuda
