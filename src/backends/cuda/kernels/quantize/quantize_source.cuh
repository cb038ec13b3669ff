// Source of a per-tensor quantizer's scale: params/quantize.h's quantize (given) and
// amax_quantize (its own).
#pragma once

#include "backends/cuda/kernels/quantize/quantize_amax.cuh"

namespace octet::cuda {

// Sources of scales that kernels are made for.
enum class ScaleFrom : int {
  given,   // an operand, or the launch before made it
  joined,  // given, and x is joined in the amax of now
  known,   // of the history, and where that is empty or there is none, of the amax of now
};

// Every pointer is to device memory.
struct ScaleSource {
  ScaleFrom from = ScaleFrom::given;
  const float* given = nullptr;
  const float* known_amax = nullptr;
  const float* history = nullptr;
  int n_history = 0;
  float inv_target = 1;
  // Results, each where it is wanted. The next history does not lie where the history lies.
  float* amax = nullptr;
  float* scale = nullptr;
  uint8_t* nonfinite = nullptr;
  float* next_history = nullptr;

  template <ScaleFrom H>
  __device__ __forceinline__ float value() const;
  // Writes what an amax leaves, by all threads of a block; `largest` is the history's.
  __device__ __forceinline__ void write(const Magnitude& now, float largest) const;
};

// In every thread by itself: threads may have parted.
__device__ __forceinline__ float largest_of(const float* history, int n) {
  float largest = 0;
  if (n % 4 == 0 && reinterpret_cast<uintptr_t>(history) % 16 == 0) {
#pragma unroll 2
    for (int i = 0; i < n; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(history + i);
      largest = fmaxf(largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    }
  } else {
    for (int i = 0; i < n; ++i) largest = fmaxf(largest, history[i]);
  }
  return largest;
}
// A scale and its amax: of now where the history is empty, or not there.
__device__ __forceinline__ float scale_of(float largest, float now, float inv_target) {
  return tensor_scale(largest > 0 ? largest : now, inv_target);
}

template <ScaleFrom H>
__device__ __forceinline__ float ScaleSource::value() const {
  if constexpr (H != ScaleFrom::known) return *given;
  Magnitude now;
  now.join(*known_amax);
  return scale_of(largest_of(history, n_history), __uint_as_float(now.top), inv_target);
}

__device__ __forceinline__ void ScaleSource::write(const Magnitude& now, float largest) const {
  const float found = __uint_as_float(now.top);
  if (threadIdx.x == 0) {
    if (amax != nullptr) *amax = found;
    if (nonfinite != nullptr) *nonfinite = now.flag != 0 ? 1 : 0;
    if (scale != nullptr) *scale = scale_of(largest, found, inv_target);
  }
  for (int i = threadIdx.x; i < n_history; i += blockDim.x)
    next_history[i] = i + 1 < n_history ? history[i + 1] : found;
}

// By all threads of a block, once, at its end. `mine` is looked at where x is joined.
template <ScaleFrom H>
__device__ __forceinline__ void end_scale(const ScaleSource& s, const Magnitude& mine) {
  if constexpr (H == ScaleFrom::joined) {
    // Magnitudes are ordered as their bits are; nobody waits for the result.
    const uint32_t found = join_block(mine);
    if (threadIdx.x != 0) return;
    atomicMax(reinterpret_cast<unsigned int*>(s.next_history + s.n_history - 1),
              found & kF32Magnitude);
    if ((found & kNotFinite) != 0) *s.nonfinite = 1;
  } else if constexpr (H == ScaleFrom::known) {
    if (blockIdx.x != 0) return;
    Magnitude now;
    now.join(*s.known_amax);
    s.write(now, largest_of(s.history, s.n_history));
  }
}

// Codes of operand 0 (by row, transposed, or both) as params/quantize.h says: result 0, and with
// both layouts result `transposed_at` the transposed ones.
void launch_quantize(const QuantizeParams& p, const ScaleSource& scale, const Launch& args,
                     int transposed_at);

}  // namespace octet::cuda
