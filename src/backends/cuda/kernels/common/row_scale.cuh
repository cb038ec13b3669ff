// Reductions over a block, and the scale of a tensor that a kernel of two passes makes: pass 1
// leaves one partial amax per block in scratch, and every block of pass 2 joins them all.
#pragma once

#include "backends/cuda/kernels/common/row_store.cuh"

namespace octet::cuda {

inline constexpr int kMaxWarps = 32;

// The same sum in every thread; `slots` is not the array of the call before (one barrier guards
// both). Blocks are whole warps.
__device__ __forceinline__ float block_sum(float v, float* slots) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  const int n_warps = blockDim.x / 32;
  if (n_warps == 1) return v;
  const int lane = threadIdx.x % 32;
  if (lane == 0) slots[threadIdx.x / 32] = v;
  __syncthreads();
  v = lane < n_warps ? slots[lane] : 0.0f;
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// The largest finite |x|, and whether there was a NaN or Inf.
struct Largest {
  float amax = 0;
  bool bad = false;

  __device__ __forceinline__ void add(float x) {
    const float magnitude = fabsf(x);
    if (magnitude < __int_as_float(0x7F800000)) {
      amax = fmaxf(amax, magnitude);
    } else {
      bad = true;
    }
  }
  // NaN goes through the maximum, so one comparison finds what is not finite.
  template <int N>
  __device__ __forceinline__ void add(const float (&v)[N]) {
    float m = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) asm("max.NaN.f32 %0, %0, %1;" : "+f"(m) : "f"(fabsf(v[i])));
    if (m < __int_as_float(0x7F800000)) {
      amax = fmaxf(amax, m);
    } else {
#pragma unroll 1
      for (int i = 0; i < N; ++i) add(pick(v, i));
    }
  }

 private:
  // v[i] without an address: registers have none.
  template <int N>
  static __device__ __forceinline__ float pick(const float (&v)[N], int i) {
    float x = v[0];
#pragma unroll
    for (int k = 1; k < N; ++k) x = k == i ? v[k] : x;
    return x;
  }
};

// In every thread; uses `slots` as block_sum does.
__device__ __forceinline__ Largest block_largest(Largest v, uint32_t* slots) {
  // |x| as an integer, its lowest bit spent on nothing: the flag is bit 31, which a magnitude never
  // has.
  uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(v.amax));
  bool bad = __any_sync(~0u, v.bad);
  const int n_warps = blockDim.x / 32, lane = threadIdx.x % 32;
  if (n_warps > 1) {
    if (lane == 0) slots[threadIdx.x / 32] = bits | (bad ? 0x80000000u : 0u);
    __syncthreads();
    const uint32_t other = lane < n_warps ? slots[lane] : 0u;
    bits = __reduce_max_sync(~0u, other & 0x7FFFFFFFu);
    bad = __any_sync(~0u, (other & 0x80000000u) != 0);
  }
  return {__uint_as_float(bits), bad};
}

struct ScaleArgs {
  Pass pass = Pass::none;
  bool first_encodes = false;  // where the history gives a scale
  bool bounded = false;        // the first pass went by bounds: the second finds codes of NaN
  int n_partial = 0;           // blocks of the first pass
  int n_history = 0;
  float target = 448;
  float limit = 0;  // of a given scale (CodesArg)
  const float* given = nullptr;
  const float* history = nullptr;
  float* partial = nullptr;  // [0]: the history's maximum, then each block's amax, negative if bad
  float* scale = nullptr;
  uint8_t* flag = nullptr;
  float* next_history = nullptr;
};

struct Encoding {
  bool codes = false, amax = false;
  float inv_scale = 1;
  float limit = 0;

  // Before codes are made of v. All threads of a launch go one way.
  template <int N>
  __device__ __forceinline__ void apply_limit(float (&v)[N]) const {
    if (limit == 0) return;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (!(fabsf(v[i] * inv_scale) <= limit)) v[i] = __int_as_float(0x7FFFFFFF);
    }
  }
};

// formats/quantize.h: at least 2^-100, and 1 for zeros.
__device__ __forceinline__ float scale_of(float amax, float target) {
  return amax == 0.0f ? 1.0f : fmaxf(amax * (1.0f / target), 0x1p-100f);
}

// A lane to a value of the history: all are read at once.
__device__ __forceinline__ float history_largest(const ScaleArgs& s) {
  float largest = 0;
  for (int i = threadIdx.x % 32; i < s.n_history; i += 32) largest = fmaxf(largest, s.history[i]);
  return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(largest)));
}
// By one warp; the next history may lie where the history lies.
__device__ __forceinline__ void move_history(const ScaleArgs& s, float amax) {
  for (int base = 0; base < s.n_history; base += 32) {
    const int i = base + static_cast<int>(threadIdx.x);
    const float next = i + 1 < s.n_history ? s.history[i + 1] : amax;
    __syncwarp();
    if (i < s.n_history) s.next_history[i] = next;
    __syncwarp();
  }
}

__device__ __forceinline__ Encoding begin_first_pass(const ScaleArgs& s) {
  const float largest = s.n_history > 0 ? history_largest(s) : 0.0f;
  if (blockIdx.x == 0 && threadIdx.x == 0) s.partial[0] = largest;
  if (!s.first_encodes || largest == 0) return {.codes = false, .amax = true, .inv_scale = 1};
  return {.codes = true, .amax = true, .inv_scale = 1.0f / scale_of(largest, s.target)};
}

// The first pass is over: nobody else reads the history any more.
__device__ __forceinline__ Encoding begin_second_pass(const ScaleArgs& s) {
  __shared__ uint32_t slots[kMaxWarps];
  const float largest = s.partial[0];
  const bool done = s.first_encodes && largest > 0;
  if (done && blockIdx.x != 0) return {};
  Largest all;
  for (int i = threadIdx.x; i < s.n_partial; i += blockDim.x) {
    const float v = s.partial[1 + i];
    all.amax = fmaxf(all.amax, fabsf(v));
    all.bad = all.bad || (__float_as_uint(v) >> 31) != 0;
  }
  all = block_largest(all, slots);
  const float scale = scale_of(largest > 0 ? largest : all.amax, s.target);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *s.scale = scale;
    if (!s.bounded || all.bad) *s.flag = all.bad ? 1 : 0;
  }
  if (blockIdx.x == 0 && threadIdx.x < 32) move_history(s, all.amax);
  return {.codes = !done, .amax = false, .inv_scale = 1.0f / scale};
}

// Every thread of the block calls it, before the block's work.
__device__ __forceinline__ Encoding begin_pass(const ScaleArgs& s) {
  switch (s.pass) {
    case Pass::given:
      return {.codes = true, .amax = false, .inv_scale = 1.0f / *s.given, .limit = s.limit};
    case Pass::first:
      return begin_first_pass(s);
    case Pass::second:
      return begin_second_pass(s);
    default:
      return {};
  }
}

// And after it, in the first pass.
__device__ __forceinline__ void end_first_pass(const ScaleArgs& s, const Largest& mine) {
  __shared__ uint32_t slots[kMaxWarps];
  const Largest all = block_largest(mine, slots);
  if (threadIdx.x == 0) s.partial[1 + blockIdx.x] = all.bad ? -all.amax : all.amax;
}

}  // namespace octet::cuda
