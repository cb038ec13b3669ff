// Places of attention's blocks, keys that their queries see, and parts that its kernels share.
#pragma once

#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/kernels/common/shared_memory.h"

namespace octet::cuda {

// One head of one sequence: element (t, c) at first + t * stride + c.
struct Head {
  int64_t first, stride, rows;
};
// `rows` of each sequence: p.q_len or p.kv_len.
__device__ __forceinline__ Head head_of(const AttentionParams& p, int64_t rows, int64_t heads,
                                        int64_t b, int64_t h) {
  return {b * rows * heads * p.head_dim + h * p.head_dim, heads * p.head_dim, rows};
}
__device__ __forceinline__ Head head_of(const AttentionParams& p, int64_t heads, int64_t b,
                                        int64_t h) {
  return head_of(p, p.q_len, heads, b, h);
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
// falls from one query to the next. Of a problem that is_square().
class Mask {
 public:
  static constexpr bool kIsSquare = true;
  __device__ __forceinline__ Mask(const AttentionParams& p, const KeyRanges& ranges, int64_t b)
      : seq_(static_cast<int>(p.q_len)),
        window_(p.window > 0 ? static_cast<int>(p.window) : seq_),
        causal_(p.causal),
        starts_(ranges.begins == nullptr ? nullptr : ranges.begins + b * p.q_len) {}

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
  // Begin and end of the queries that see any of the keys [first, last], to multiples of `step`
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

// The same of every problem but over a cache. A query that sees no key: first_key(t) > last_key(t).
class RangeMask {
 public:
  static constexpr bool kIsSquare = false;
  __device__ __forceinline__ RangeMask(const AttentionParams& p, const KeyRanges& ranges, int64_t b)
      : q_len_(static_cast<int>(p.q_len)),
        kv_len_(static_cast<int>(p.kv_len)),
        window_(static_cast<int>(p.window)),
        causal_(p.causal),
        begins_(ranges.begins == nullptr ? nullptr : ranges.begins + b * p.q_len),
        ends_(ranges.ends == nullptr ? nullptr : ranges.ends + b * p.q_len) {}

  __device__ __forceinline__ int first_key(int query) const {
    return first_key(query, begins_ == nullptr ? 0 : begins_[min(query, q_len_ - 1)]);
  }
  __device__ __forceinline__ int last_key(int query) const {
    return last_key(query, ends_ == nullptr ? kv_len_ : ends_[min(query, q_len_ - 1)]);
  }
  // `begin`, `end`: of the query's range.
  __device__ __forceinline__ int first_key(int query, int begin) const {
    const int from = window_ > 0 ? place(query) - window_ + 1 : 0;
    return max(max(begin, from), 0);
  }
  __device__ __forceinline__ int last_key(int query, int end) const {
    const int last = min(end, kv_len_) - 1;
    if (causal_) return min(last, place(query));
    return window_ > 0 ? min(last, place(query) + window_ - 1) : last;
  }

  __device__ __forceinline__ const int32_t* starts() const { return begins_; }
  __device__ __forceinline__ const int32_t* ends() const { return ends_; }
  __device__ __forceinline__ int seq() const { return q_len_; }
  __device__ __forceinline__ int kv_len() const { return kv_len_; }
  // Counterparts of Mask's.
  __device__ __forceinline__ int first_query(int first) const {
    return first_where([&](int query) { return last_key(query) >= first; });
  }
  __device__ __forceinline__ int end_of_queries(int, int last, int) const {
    return first_where([&](int query) { return first_key(query) > last; });
  }

 private:
  __device__ __forceinline__ int place(int query) const { return query + kv_len_ - q_len_; }
  // The first query for which it is true, as it is for all behind it; q_len where there is none.
  template <typename F>
  __device__ __forceinline__ int first_where(F&& is_true) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int first = 0, end = q_len_;
    while (first < end) {
      const int step = (end - first + 31) / 32;
      const int query = first + lane * step + step - 1;  // the last of the lane's
      const bool is_before = query < end && !is_true(query);
      const int n = __popc(__ballot_sync(0xFFFFFFFFu, is_before));
      end = min(first + n * step + step - 1, end);
      first = min(first + n * step, q_len_);
    }
    return first;
  }

  int q_len_, kv_len_, window_;
  bool causal_;
  const int32_t *begins_, *ends_;
};

// Over a KV cache: query t sees the keys up to positions[t], in any order.
class CachedMask {
 public:
  __device__ __forceinline__ CachedMask(const AttentionParams& p, const int32_t* positions,
                                        int64_t b)
      : end_(static_cast<int>(p.q_len) - 1),
        capacity_(static_cast<int>(p.kv_len)),
        window_(p.window > 0 ? static_cast<int>(p.window) : capacity_),
        positions_(positions + b * p.q_len) {}

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

}  // namespace octet::cuda
