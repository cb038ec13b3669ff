// The rotation of a pair of elements, for the kernels that rotate.
#pragma once

#include <span>

#include "backends/cuda/launch/kernel.h"
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

// Addresses of a rotation that another kernel may make (attention/attention_cached.cu), and the
// frequency of each pair.
struct RopeStep {
  const void* x;
  const void* y;
  const int32_t* positions;
  std::span<const double> frequencies;
};
class RopeKernel : public Prepared {
 public:
  virtual RopeStep step_of(const Launch& launch) const = 0;
};

}  // namespace octet::cuda
