// Where a per-tensor quantizer has its scale from: params/quantize.h's quantize (given) and
// amax_quantize (its own).
#pragma once

#include <span>
#include <vector>

#include "backends/cuda/kernels/quantize/quantize_amax.cuh"

namespace octet::cuda {

// What kernels are made for.
enum class ScaleFrom : int {
  given,    // an operand, or the launch before made it
  joined,   // given, and x is joined in the amax of now
  amax,     // of now, which is known
  history,  // which is not empty, or the amax of now, which is known
};

// Every pointer is to device memory.
struct ScaleSource {
  ScaleFrom from = ScaleFrom::given;
  const float* given = nullptr;
  const float* amax = nullptr;
  const float* history = nullptr;
  int n_history = 0;
  float inv_target = 1;
  // Results. The next history does not lie where the history lies.
  float* scale = nullptr;
  uint8_t* nonfinite = nullptr;
  float* next_history = nullptr;

  template <ScaleFrom H>
  __device__ __forceinline__ float value() const;
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
// Of an amax that is known.
__device__ __forceinline__ Magnitude known_amax(const float* amax) {
  Magnitude found;
  found.join(*amax);
  return found;
}

template <ScaleFrom H>
__device__ __forceinline__ float ScaleSource::value() const {
  if constexpr (H == ScaleFrom::given || H == ScaleFrom::joined) return *given;
  const float largest = H == ScaleFrom::history ? largest_of(history, n_history) : 0.0f;
  return scale_of(largest, __uint_as_float(known_amax(amax).top), inv_target);
}

// What a delayed scale leaves, by the first n_history threads of a block or one warp.
struct HistoryStep {
  const float* history = nullptr;
  int n = 0;
  float* next = nullptr;
};
__device__ __forceinline__ void move_history(const HistoryStep& step, float amax) {
  for (int i = threadIdx.x; i < step.n; i += blockDim.x)
    step.next[i] = i + 1 < step.n ? step.history[i + 1] : amax;
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
  } else if constexpr (H != ScaleFrom::given) {
    if (blockIdx.x != 0) return;
    const Magnitude now = known_amax(s.amax);
    if (threadIdx.x == 0) {
      *s.scale = s.value<H>();
      *s.nonfinite = now.flag != 0 ? 1 : 0;
    }
    if constexpr (H == ScaleFrom::history)
      move_history({s.history, s.n_history, s.next_history}, __uint_as_float(now.top));
  }
}

// The amax of several operands, over as many launches as their number needs.
struct AmaxResults {
  float* amax = nullptr;  // each where it is wanted
  uint8_t* nonfinite = nullptr;
  float* scale = nullptr;
  float inv_target = 1;
  HistoryStep history = {};
  // Where the history gives the scale, the quantizer finds the amax of the first operand as it
  // reads it: that one is left out then, and the rest are scalars of one launch.
  bool leaves_first = false;
};
struct AmaxCall {
  void* const* operands = nullptr;
  void* scratch = nullptr;  // amax_scratch_bytes
  AmaxResults results = {};
  unsigned int* n_ended = nullptr;  // of the kernel's counters
  cudaStream_t stream = nullptr;
};
class AmaxLaunches {
 public:
  explicit AmaxLaunches(std::span<const int64_t> sizes_and_dtypes);
  void launch(const AmaxCall& call) const;

 private:
  static int blocks_of(int64_t n);
  std::vector<int64_t> n_;
  std::vector<Dtype> dtypes_;
  int n_blocks_ = 0;
  Dtype common_ = Dtype::real;  // of all operands of more than one element, unless not alike
  bool alike_ = true;
};

// codes of x (by row, transposed, or both) as params/quantize.h says; nullptr: not wanted.
struct QuantizeCall {
  const void* x = nullptr;
  ScaleSource scale = {};
  uint8_t *by_row = nullptr, *transposed = nullptr;
  cudaStream_t stream = nullptr;
};
void launch_quantize(const QuantizeParams& p, const QuantizeCall& call);
// By a given scale, any format and p.rounding.
void launch_rounded(const QuantizeParams& p, const QuantizeCall& call);

}  // namespace octet::cuda
