// Where attention's blocks work, what their queries see, and what its kernels share.
#pragma once

#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/common/element.cuh"

namespace octet::cuda {

// One head of one sequence: element (t, c) at first + t * stride + c.
struct Head {
  int64_t first, stride, rows;
};
// `rows` of each sequence: p.seq, or those of a cache.
__device__ __forceinline__ Head head_of(const AttentionParams& p, int64_t rows, int64_t heads,
                                        int64_t b, int64_t h) {
  return {b * rows * heads * p.head_dim + h * p.head_dim, heads * p.head_dim, rows};
}
__device__ __forceinline__ Head head_of(const AttentionParams& p, int64_t heads, int64_t b,
                                        int64_t h) {
  return head_of(p, p.seq, heads, b, h);
}

// A head of a sequence, and the first row of the block's tile.
struct Place {
  int64_t b, h, first;
};
// last_first: the tiles that a causal mask leaves most work start first.
__device__ __forceinline__ Place place_of(int64_t heads, int64_t n_tiles, int tile_rows,
                                          bool last_first) {
  const int64_t i = blockIdx.x;
  const int64_t tile = i / heads % n_tiles;
  return {i / (heads * n_tiles), i % heads, (last_first ? n_tiles - 1 - tile : tile) * tile_rows};
}

// The keys that a sequence's queries see: query t those from first_key(t) to last_key(t). Neither
// falls from one query to the next.
class Mask {
 public:
  __device__ __forceinline__ Mask(const AttentionParams& p, const int32_t* doc_starts, int64_t b)
      : seq_(static_cast<int>(p.seq)),
        window_(p.window > 0 ? static_cast<int>(p.window) : seq_),
        causal_(p.causal),
        starts_(doc_starts == nullptr ? nullptr : doc_starts + b * p.seq) {}

  __device__ __forceinline__ int first_key(int query) const {
    return first_key(query, starts_ == nullptr ? 0 : starts_[min(query, seq_ - 1)]);
  }
  // `start`: of the query's document.
  __device__ __forceinline__ int first_key(int query, int start) const {
    return causal_ ? max(start, max(query - window_ + 1, 0)) : 0;
  }
  __device__ __forceinline__ int last_key(int query) const { return causal_ ? query : seq_ - 1; }

  __device__ __forceinline__ const int32_t* starts() const { return starts_; }
  __device__ __forceinline__ int seq() const { return seq_; }
  // Where the queries begin and end that see any of the keys [first, last], to multiples of `step`
  // beyond `first`. Every lane of a warp asks for the same.
  __device__ __forceinline__ int first_query(int first) const { return causal_ ? first : 0; }
  __device__ __forceinline__ int end_of_queries(int first, int last, int step) const {
    if (!causal_) return seq_;
    const int end = min(seq_, last + window_);
    if (starts_ == nullptr) return end;
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (int from = first + step; from < end; from += 32 * step) {
      const int query = from + lane * step;
      const bool sees = query < end && starts_[query] <= last;
      const int n = __popc(__ballot_sync(0xFFFFFFFFu, sees));
      if (n < 32) return min(end, from + n * step);
    }
    return end;
  }

 private:
  int seq_, window_;
  bool causal_;
  const int32_t* starts_;
};

// Over a KV cache: query t sees the keys up to positions[t], in any order.
class CachedMask {
 public:
  __device__ __forceinline__ CachedMask(const AttentionParams& p, const int32_t* positions,
                                        int64_t b)
      : end_(static_cast<int>(p.seq) - 1),
        capacity_(static_cast<int>(p.capacity)),
        window_(p.window > 0 ? static_cast<int>(p.window) : capacity_),
        positions_(positions + b * p.seq) {}

  __device__ __forceinline__ int last_key(int query) const {
    return min(positions_[min(query, end_)], capacity_ - 1);
  }
  __device__ __forceinline__ int first_key(int query) const {
    return max(last_key(query) - window_ + 1, 0);
  }

 private:
  int end_, capacity_, window_;
  const int32_t* positions_;
};

template <typename Kernel>
void allow_shared(Kernel* kernel, size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "attention's shared memory");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "attention's shared memory");
}

}  // namespace octet::cuda
