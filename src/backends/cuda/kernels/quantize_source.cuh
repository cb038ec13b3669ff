// Where a per-tensor quantizer has its scale from: params/quantize.h's quantize (given) and
// amax_quantize (its own).
#pragma once

#include <span>
#include <vector>

#include "backends/cuda/kernels/quantize_amax.cuh"

namespace octet::cuda {

// Every pointer is to device memory. Without a history the scale is of the amax of now, which is
// known, or was found by the launch before; with one, of the history's largest, or where that is 0
// of the amax of now.
struct OwnScale {
  const float* amax = nullptr;       // where it is known
  MeasuredAmax* measured = nullptr;  // where it is not
  bool joins_x = false;              // this kernel completes `measured`
  const float* history = nullptr;
  int n_history = 0;
  float inv_target = 1;
  float* scale = nullptr;
  uint8_t* nonfinite = nullptr;
  float* next_history = nullptr;  // may be history
};

// In every thread by itself: threads may have parted.
__device__ __forceinline__ float largest_of(const float* history, int n) {
  float largest = 0;
  if (n % 4 == 0 && reinterpret_cast<uintptr_t>(history) % 16 == 0) {
    for (int i = 0; i < n; i += 4) {
      const float4 v = *reinterpret_cast<const float4*>(history + i);
      largest = fmaxf(largest, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
    }
  } else {
    for (int i = 0; i < n; ++i) largest = fmaxf(largest, history[i]);
  }
  return largest;
}

// What kernels are made for.
enum class ScaleFrom : int { given, amax, history };

struct ScaleSource {
  const float* given = nullptr;  // nullptr: `own`
  OwnScale own = {};

  template <ScaleFrom H>
  __device__ __forceinline__ float scale() const {
    if constexpr (H == ScaleFrom::given) return *given;
    float largest = 0;
    if constexpr (H == ScaleFrom::history) largest = largest_of(own.history, own.n_history);
    return tensor_scale(largest > 0 ? largest : amax(), own.inv_target);
  }
  // Of now, over what is finite. Where the kernel joins x: complete only if the history is empty,
  // the launch before having gone over x then, or behind the last block.
  __device__ __forceinline__ float amax() const {
    if (own.measured != nullptr) return __uint_as_float(__ldcg(&own.measured->top));
    const float amax = fabsf(*own.amax);
    return __float_as_uint(amax) < kF32Inf ? amax : 0.0f;
  }
  __device__ __forceinline__ bool nonfinite() const {
    if (own.measured != nullptr) return __ldcg(&own.measured->flag) != 0;
    return __float_as_uint(fabsf(*own.amax)) >= kF32Inf;
  }
  template <ScaleFrom H>
  __device__ __forceinline__ bool joins() const {
    return H == ScaleFrom::history && own.joins_x;
  }
};

// By one warp, when nobody else reads the history any more.
__device__ __forceinline__ void move_history(const OwnScale& own, float amax) {
  for (int base = 0; base < own.n_history; base += 32) {
    const int i = base + static_cast<int>(threadIdx.x);
    const float next = i + 1 < own.n_history ? own.history[i + 1] : amax;
    __syncwarp();
    if (i < own.n_history) own.next_history[i] = next;
    __syncwarp();
  }
}

// By all threads of a block, once, behind its last scale() and join and best before its stores,
// which a fence would wait for. `mine` is looked at where the source joins x.
template <ScaleFrom H>
__device__ __forceinline__ void end_scale(const ScaleSource& source, const Magnitude& mine) {
  if constexpr (H == ScaleFrom::given) return;
  const OwnScale& own = source.own;
  if constexpr (H == ScaleFrom::amax) {
    if (blockIdx.x != 0) return;  // all could write the same
  } else {
    static unsigned int n_ended = 0;
    __shared__ bool last;
    const uint32_t joined = own.joins_x ? join_block(mine) : 0;
    __syncthreads();  // all have read the history
    if (threadIdx.x == 0) {
      if (own.joins_x) {
        atomicMax(&own.measured->top, joined & kF32Magnitude);
        if ((joined & kNotFinite) != 0) atomicOr(&own.measured->flag, 1u);
      }
      last = count_block(&n_ended, gridDim.x);
    }
    __syncthreads();
    if (!last) return;
  }
  if (threadIdx.x >= 32) return;
  const float scale = source.scale<H>();
  const bool nonfinite = source.nonfinite();
  const float now = source.amax();
  __syncwarp();
  if (threadIdx.x == 0) {
    *own.scale = scale;
    *own.nonfinite = nonfinite ? 1 : 0;
  }
  move_history(own, now);
}

// The amax of several operands, over as many launches as their number needs.
struct AmaxResults {
  float* amax = nullptr;  // each where it is wanted
  bool* nonfinite = nullptr;
  MeasuredAmax* measured = nullptr;
  // Where it holds anything, the first operand is left out, and the rest are scalars of one launch.
  const float* history = nullptr;
  int n_history = 0;
};
struct AmaxCall {
  void* const* operands = nullptr;
  void* scratch = nullptr;  // amax_scratch_bytes
  AmaxResults results = {};
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

}  // namespace octet::cuda
