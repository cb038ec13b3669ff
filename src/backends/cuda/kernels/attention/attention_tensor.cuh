// Base of both directions of attention on tensor cores. A block of four warps owns rows, queries
// or keys, and goes through tiles of the other side, of which two are in shared memory: one comes
// while the other is multiplied. A warp leaves out the tiles that its rows do not see, and tests
// element by element only where it sees a part. Nothing is added across blocks: deterministic. The
// softmax is in powers of two: one multiplication prepares each score.
#pragma once

#include "backends/cuda/kernels/attention/attention_bias.cuh"
#include "backends/cuda/kernels/attention/attention_mma.cuh"

namespace octet::cuda {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = kAttentionWarps * 32;
inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;

// Over the warp.
__device__ __forceinline__ int warp_min(int x) {
  return __reduce_min_sync(kWholeWarp, x);
}
__device__ __forceinline__ int warp_max(int x) {
  return __reduce_max_sync(kWholeWarp, x);
}

// The keys that a warp's queries [first, last] see: any of them, and all of them.
struct WarpKeys {
  int any_first, any_last, all_first, all_last;

  // Keys of 32 queries, one query for each lane.
  __device__ __forceinline__ WarpKeys(const AttentionParams& p, const CachedMask& mask, int first,
                                      int last) {
    const int query = first + static_cast<int>(threadIdx.x % 32);
    const int first_key = mask.first_key(query), last_key = mask.last_key(query);
    any_first = warp_min(first_key), any_last = first < p.q_len ? warp_max(last_key) : -1;
    all_first = warp_max(first_key), all_last = warp_min(last_key);
  }

  template <typename M>
  __device__ __forceinline__ WarpKeys(const AttentionParams& p, const M& mask, int first,
                                      int last) {
    const int end = static_cast<int>(p.q_len) - 1;
    const int bottom = min(first, end), top = min(last, end);
    any_first = mask.first_key(bottom), any_last = first > end ? -1 : mask.last_key(top);
    all_first = mask.first_key(top), all_last = mask.last_key(bottom);
  }
  __device__ __forceinline__ bool any(int first, int n) const {
    return first <= any_last && first + n > any_first;
  }
  __device__ __forceinline__ bool all(int first, int n) const {
    return first >= all_first && first + n - 1 <= all_last;
  }
};

// The tiles of `step` keys from `begin` on that a block of queries sees.
struct KeyRange {
  int begin, end;
};
template <typename M>
__device__ __forceinline__ KeyRange keys_of(const AttentionParams& p, const M& mask, int first,
                                            int n_queries, int step) {
  const int last = min(first + n_queries, static_cast<int>(p.q_len)) - 1;
  return {mask.first_key(first) / step * step, mask.last_key(last) + 1};
}

__device__ __forceinline__ KeyRange keys_of(const AttentionParams& p, const CachedMask& mask,
                                            int first, int n_queries, int step) {
  int first_key = static_cast<int>(p.kv_len), last_key = -1;
  for (int i = static_cast<int>(threadIdx.x % 32); i < n_queries && first + i < p.q_len; i += 32) {
    first_key = min(first_key, mask.first_key(first + i));
    last_key = max(last_key, mask.last_key(first + i));
  }
  return {warp_min(first_key) / step * step, warp_max(last_key) + 1};
}

// The scores of queries from `query` on with keys from `key` on, times `factor`, with the bias, in
// powers of two.
template <int M, int N>
__device__ __forceinline__ void add_bias(const Bias& bias, float factor, int query, int key,
                                         Products<M, N>& s) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float own = bias.at(query + m * 16 + row_at(i), key + column_at(n, i));
        s[m][n][i] = __fmaf_rn(s[m][n][i], factor, own * kLog2E);
      }
    }
  }
}

// Which problems a kernel takes: those that are square, or all, with a bias or without.
struct SquareForm {
  using Mask = octet::cuda::Mask;
  static constexpr bool kHasBias = false;
  static __device__ __forceinline__ int64_t keys(const AttentionParams& p) { return p.q_len; }
};
template <bool kBias>
struct AnyForm {
  using Mask = RangeMask;
  static constexpr bool kHasBias = kBias;
  static __device__ __forceinline__ int64_t keys(const AttentionParams& p) { return p.kv_len; }
};
// Calls f.template operator()<Form>().
template <typename F>
void visit_form(const AttentionParams& p, F&& f) {
  if (p.form == AttentionForm::square) return f.template operator()<SquareForm>();
  p.form == AttentionForm::biased ? f.template operator()<AnyForm<true>>()
                                  : f.template operator()<AnyForm<false>>();
}

// Calls f.template operator()<T, D>().
template <typename F>
void visit_tensor_kernel(const AttentionParams& p, F&& f) {
  const auto of_size = [&]<Dtype T>() {
    return p.head_dim <= 64 ? f.template operator()<T, 64>() : f.template operator()<T, 128>();
  };
  return p.dtype == Dtype::bf16 ? of_size.template operator()<Dtype::bf16>()
                                : of_size.template operator()<Dtype::fp16>();
}

template <int D>
constexpr size_t rows_bytes(int n_rows) {
  return static_cast<size_t>(n_rows) * kRowLength<D> * sizeof(uint16_t);
}
inline unsigned attention_blocks(const AttentionParams& p, int64_t heads, int64_t n_tiles) {
  return static_cast<unsigned>(p.batch * heads * n_tiles);
}

}  // namespace octet::cuda
