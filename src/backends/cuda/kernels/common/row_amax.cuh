// The amax that a kernel gives of what it stores (params/rows.h, AmaxArg): every block leaves its
// own in scratch, and the block that ends last joins them.
#pragma once

#include "backends/cuda/kernels/common/row_scale.cuh"

namespace octet::cuda {

struct AmaxArgs {
  uint32_t* partial = nullptr;  // one per block; null: no amax is wanted
  float* amax = nullptr;
  uint8_t* flag = nullptr;
  unsigned int* n_ended = nullptr;
};

// The largest and the least of bf16 in pairs: two instructions for two pairs, where magnitudes
// would take three. NaN goes through both.
class PairRange {
 public:
  template <int N>
  __device__ __forceinline__ void add(const uint32_t (&words)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const auto pair = *reinterpret_cast<const __nv_bfloat162*>(&words[i]);
      high_ = __hmax2_nan(high_, pair);
      low_ = __hmin2_nan(low_, pair);
    }
  }
  // The larger magnitude.
  __device__ __forceinline__ __nv_bfloat162 largest() const {
    return __hmax2_nan(high_, __hneg2(low_));
  }

 private:
  __nv_bfloat162 high_ = __floats2bfloat162_rn(0.0f, 0.0f), low_ = high_;
};

// Largest, of values as they are stored.
class LargestWritten {
 public:
  // Not wanted: it stays empty.
  __device__ __forceinline__ explicit LargestWritten(const AmaxArgs& a)
      : wanted(a.partial != nullptr) {}
  const bool wanted;

  // Pairs of bf16.
  template <int N>
  __device__ __forceinline__ void add_pairs(const uint32_t (&words)[N]) {
    PairRange range;
    range.add(words);
    if (join(range)) return;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float v[2];
      unpack_bf16(words[i], v);
      all_.add(v[0]);
      all_.add(v[1]);
    }
  }
  // Pairs of D.
  template <Dtype D, int N>
  __device__ __forceinline__ void add_written(const uint32_t (&words)[N]) {
    if constexpr (D == Dtype::bf16) {
      add_pairs(words);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        float v[2];
        unpack_pair<D>(words[i], v);
        all_.add(v[0]);
        all_.add(v[1]);
      }
    }
  }
  // True if all were finite; otherwise they are not taken, and are to be added one by one.
  __device__ __forceinline__ bool join(const PairRange& range) {
    const __nv_bfloat162 top = range.largest();
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(&top);
    // The carry out of an exponent of ones.
    if ((((bits & 0x7F807F80u) + 0x00800080u) & 0x80008000u) != 0) return false;
    pairs_ = __hmax2(pairs_, top);
    return true;
  }
  __device__ __forceinline__ void add(const float (&v)[kChunk]) {
    all_.add(v);
  }
  __device__ __forceinline__ void add(const Largest& other) {
    all_ = {fmaxf(all_.amax, other.amax), all_.bad || other.bad};
  }

  __device__ __forceinline__ Largest all() const {
    float v[2];
    unpack_bf16(*reinterpret_cast<const uint32_t*>(&pairs_), v);
    return {fmaxf(all_.amax, fmaxf(v[0], v[1])), all_.bad};
  }

 private:
  Largest all_;
  __nv_bfloat162 pairs_ = __floats2bfloat162_rn(0.0f, 0.0f);
};

// Sixteen values in accesses of W, as f32 or D, and their amax where it is wanted.
template <int W, Dtype D = Dtype::bf16>
__device__ __forceinline__ void store_float(const Unquantized& y, const Place& p,
                                            const float (&v)[kChunk], LargestWritten& largest) {
  if (y.dtype == Dtype::f32) {
    if (largest.wanted) largest.add(v);
    return store_float<W>(y, p, v);
  }
  uint32_t words[kChunk / 2];
  pack_pairs<D>(v, words);
  if (largest.wanted) largest.add_written<D>(words);
  store_pairs<W>(y, p, words);
}

// The value that a store leaves.
__device__ __forceinline__ float as_written(Dtype dtype, float v) {
  if (dtype == Dtype::f32) return v;
  return dtype == Dtype::bf16 ? to_float<Dtype::bf16>(from_float<Dtype::bf16>(v))
                              : to_float<Dtype::fp16>(from_float<Dtype::fp16>(v));
}

// Every thread of every block calls it, once, after the block's work.
__device__ __forceinline__ void end_amax(const AmaxArgs& a, const Largest& mine) {
  __shared__ uint32_t slots[2][kMaxWarps];
  __shared__ bool last;
  const Largest block = block_largest(mine, slots[0]);
  if (threadIdx.x == 0) {
    a.partial[blockIdx.x] = __float_as_uint(block.bad ? -block.amax : block.amax);
    last = count_block(a.n_ended, gridDim.x);
  }
  __syncthreads();
  if (!last) return;
  Largest all;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
    const uint32_t v = __ldcg(a.partial + i);
    all.amax = fmaxf(all.amax, __uint_as_float(v & 0x7FFFFFFFu));
    all.bad = all.bad || (v >> 31) != 0;
  }
  all = block_largest(all, slots[1]);
  if (threadIdx.x != 0) return;
  *a.amax = all.amax;
  *a.flag = all.bad ? 1 : 0;
}

inline AmaxArgs amax_of(const AmaxArg& arg, const Launch& launch) {
  if (arg.amax_at == kAbsent) return {};
  return {.partial = static_cast<uint32_t*>(launch.scratch),
          .amax = launch.out<float>(arg.amax_at),
          .flag = launch.out<uint8_t>(arg.flag_at),
          .n_ended = launch.counters};
}

}  // namespace octet::cuda
