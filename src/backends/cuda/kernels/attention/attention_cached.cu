// Attention over a KV cache, for any type and head size, with f32 products: a block makes one row
// of one head, or of up to four that share their keys, so that it reads these once. Keys are dealt
// to groups of lanes that hold eight columns a lane, each with a softmax of its own; these are
// joined in a fixed order, which is the same for every number of heads, in a slice of the keys (a
// block's own or one of those that it makes), and the slices' in turn.
//
// Of a chain of steps (plan/joined_launches.h) the block also rotates its query and its key and
// writes the key's and the value's row into the caches before it reads them. Blocks that share keys
// all write them, the same bits. They are those of rope.cu.
#include <algorithm>
#include <optional>

#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/attention/attention_bias.cuh"
#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/kernels/common/fast_math.cuh"
#include "backends/cuda/kernels/common/rotation.cuh"
#include "backends/cuda/launch/join.h"
#include "ir/ops/slots.h"

namespace octet::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;
constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;

// Columns [column, column + 8) of a row at `from`; zeros beyond the head.
template <Dtype T>
__device__ __forceinline__ void load_eight(const Storage<T>* from, int column, int head_dim,
                                           float (&x)[8]) {
  if (head_dim % 8 == 0 && column < head_dim) {
    constexpr int kPack = 16 / static_cast<int>(sizeof(Storage<T>));
#pragma unroll
    for (int i = 0; i < 8; i += kPack) {
      const auto pack = load_pack<kPack>(from + column + i);
#pragma unroll
      for (int j = 0; j < kPack; ++j) x[i + j] = to_float<T>(pack.at[j]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x[i] = column + i < head_dim ? to_float<T>(from[column + i]) : 0.0f;
  }
}

// A softmax in powers of two, and the sum of values so far; -Inf, 0, 0 where there was no key.
struct Partial {
  float top, sum, o[8];

  __device__ __forceinline__ void shrink_to(float next) {
    const float by = next == -INFINITY ? 1.0f : fast_exp2(top - next);
    top = next;
    sum *= by;
#pragma unroll
    for (float& x : o) x *= by;
  }
  __device__ __forceinline__ void add(float score, const float (&v)[8]) {
    shrink_to(fmaxf(top, score));
    const float p = score == -INFINITY ? 0.0f : fast_exp2(score - top);
    sum += p;
#pragma unroll
    for (int i = 0; i < 8; ++i) o[i] = __fmaf_rn(p, v[i], o[i]);
  }
  // With that of the lane `step` away.
  __device__ __forceinline__ void join(int step) {
    shrink_to(fmaxf(top, __shfl_xor_sync(kWholeWarp, top, step)));
    sum += __shfl_xor_sync(kWholeWarp, sum, step);
#pragma unroll
    for (float& x : o) x += __shfl_xor_sync(kWholeWarp, x, step);
  }
};

// The row of the block, the first of its heads, and the keys that it sees.
struct Row {
  int64_t b, h, t;
  int first, last;

  __device__ __forceinline__ Row(const AttentionParams& p, const int32_t* positions, int share,
                                 unsigned block) {
    const int64_t n_blocks = p.heads / share;
    h = block % n_blocks * share;
    t = block / n_blocks % p.q_len;
    b = block / (n_blocks * p.q_len);
    last = min(positions[b * p.q_len + t], static_cast<int>(p.kv_len) - 1);
    first = p.window > 0 ? max(last - static_cast<int>(p.window) + 1, 0) : 0;
  }
};

// One column of a softmax and its sum of values.
struct Column {
  float top = -INFINITY, sum = 0, o = 0;

  __device__ __forceinline__ void join(const Column& next) {
    const float to = fmaxf(top, next.top);
    if (to == -INFINITY) return;
    const float by = fast_exp2(top - to), by_next = fast_exp2(next.top - to);
    sum = __fmaf_rn(next.sum, by_next, sum * by);
    o = __fmaf_rn(next.o, by_next, o * by);
    top = to;
  }
  __device__ __forceinline__ float result() const { return sum == 0 ? 0.0f : o / sum; }
  __device__ __forceinline__ float log_sum() const { return top * kLn2 + logf(sum); }
};

// Column `c` of the warps' partials, joined in their order.
__device__ __forceinline__ Column join_warps(const Partial (&parts)[kWarps][32], int c) {
  const int lane = c / 8, i = c % 8;
  Column all;
  for (int w = 0; w < kWarps; ++w) all.top = fmaxf(all.top, parts[w][lane].top);
  for (int w = 0; w < kWarps; ++w) {
    const Partial& part = parts[w][lane];
    const float by = all.top == -INFINITY ? 0.0f : fast_exp2(part.top - all.top);
    all.sum = __fmaf_rn(part.sum, by, all.sum);
    all.o = __fmaf_rn(part.o[i], by, all.o);
  }
  return all;
}

// The slices of the keys that a row sees.
struct RowSlices {
  int first_run, last_run;

  template <typename Range>  // a row, or its keys
  __device__ __forceinline__ explicit RowSlices(const Range& row)
      : first_run(row.first / kSliceKeys), last_run(row.last < 0 ? -1 : row.last / kSliceKeys) {}
  // The first run of a slice; beyond last_run where it has none.
  __device__ __forceinline__ int first_of(int slice) const {
    return first_run + (slice - first_run % kSlices + kSlices) % kSlices;
  }
  __device__ __forceinline__ bool has(int slice) const { return first_of(slice) <= last_run; }
};

// The keys of a row that one block's heads see, as one thread reads them.
template <Dtype T>
struct Keys {
  const Storage<T>*k, *v;
  int64_t stride;
  int column, head_dim;
  int first, last;
};

// The partials of this thread's group of lanes, of which `group` is one of kThreads / kLanes;
// with_bias(score, key) in powers of two. The loads of kAtOnce keys of a group are in flight
// together, which changes no order.
template <Dtype T, int kLanes, int kAtOnce, int kShare, typename OfKey>
__device__ __forceinline__ void attend(const Keys<T>& keys, const float (&q)[kShare][8],
                                       const OfKey& with_bias, Partial (&mine)[kShare]) {
  constexpr int kGroups = kThreads / kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  for (int from = keys.first; from <= keys.last; from += kGroups * kAtOnce) {
    float score[kShare][kAtOnce], values[kAtOnce][8];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int key = min(from + u * kGroups + group, keys.last);
      float of_key[8];
      load_eight<T>(keys.k + key * keys.stride, keys.column, keys.head_dim, of_key);
      load_eight<T>(keys.v + key * keys.stride, keys.column, keys.head_dim, values[u]);
#pragma unroll
      for (int h = 0; h < kShare; ++h) {
        score[h][u] = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) score[h][u] = __fmaf_rn(q[h][i], of_key[i], score[h][u]);
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int key = from + u * kGroups + group;
      const bool there = key <= keys.last;
#pragma unroll
      for (int h = 0; h < kShare; ++h) {
        float sum = score[h][u];
#pragma unroll
        for (int step = kLanes / 2; step > 0; step /= 2) {
          sum += __shfl_xor_sync(kWholeWarp, sum, step);
        }
        mine[h].add(there ? with_bias(sum, key) : -INFINITY, values[u]);
      }
    }
  }
}

// The partials of a warp's lanes of all keys of a slice, for each of the block's heads.
template <Dtype T, int kLanes, int kAtOnce, int kShare, typename OfKey>
__device__ __forceinline__ void attend_slice(const Keys<T>& keys, int slice,
                                             const float (&q)[kShare][8], const OfKey& with_bias,
                                             Partial (&mine)[kShare]) {
  const RowSlices slices(keys);
#pragma unroll
  for (int h = 0; h < kShare; ++h) mine[h] = {-INFINITY, 0, {}};
  for (int run = slices.first_of(slice); run <= slices.last_run; run += kSlices) {
    Keys<T> of_run = keys;
    of_run.first = max(keys.first, run * kSliceKeys);
    of_run.last = min(keys.last, run * kSliceKeys + kSliceKeys - 1);
    attend<T, kLanes, kAtOnce>(of_run, q, with_bias, mine);
  }
#pragma unroll
  for (int h = 0; h < kShare; ++h) {
#pragma unroll
    for (int step = kLanes; step < 32; step *= 2) mine[h].join(step);
  }
}

enum class HasBias : bool { no, yes };

// The keys and values that the heads of a block see.
template <Dtype T, int kLanes>
__device__ __forceinline__ Keys<T> keys_of(const AttentionParams& p, const AttentionForward& x,
                                           const Row& row) {
  const int64_t stride = p.kv_heads * p.head_dim, kv_head = row.h / (p.heads / p.kv_heads);
  const int64_t at = row.b * p.kv_len * stride + kv_head * p.head_dim;
  return {.k = static_cast<const Storage<T>*>(x.k) + at,
          .v = static_cast<const Storage<T>*>(x.v) + at,
          .stride = stride,
          .column = static_cast<int>(threadIdx.x % kLanes) * 8,
          .head_dim = static_cast<int>(p.head_dim),
          .first = row.first,
          .last = row.last};
}

// A block's heads, and their queries, which lie one behind the other.
template <Dtype T>
struct Heads {
  const Row& row;
  const Storage<T>* queries;
};

// One slice of a block's heads: to(h, column) in threads below head_dim.
template <Dtype T, int kLanes, int kAtOnce, int kShare, HasBias kBias, typename To>
__device__ __forceinline__ void make_slice(const AttentionParams& p, const AttentionForward& x,
                                           const Heads<T>& heads, int slice, const To& to) {
  const Row& row = heads.row;
  __shared__ Partial parts[kWarps][32];
  const int d = static_cast<int>(p.head_dim), lane = static_cast<int>(threadIdx.x % 32);
  const Keys<T> keys = keys_of<T, kLanes>(p, x, row);
  float q[kShare][8];
  Partial mine[kShare];
#pragma unroll
  for (int h = 0; h < kShare; ++h) {
    load_eight<T>(heads.queries + h * d, keys.column, d, q[h]);
#pragma unroll
    for (float& one : q[h]) one *= p.scale * kLog2E;
  }
  if constexpr (kBias == HasBias::yes) {
    static_assert(kShare == 1);  // each head has its own
    const Bias bias(p, x.bias, row.b, row.h);
    const auto with_bias = [&](float score, int key) {
      return __fmaf_rn(bias.at(static_cast<int>(row.t), key), kLog2E, score);
    };
    attend_slice<T, kLanes, kAtOnce>(keys, slice, q, with_bias, mine);
  } else {
    attend_slice<T, kLanes, kAtOnce>(
        keys, slice, q, [](float score, int) { return score; }, mine);
  }
  const int c = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int h = 0; h < kShare; ++h) {
    parts[threadIdx.x / 32][lane] = mine[h];
    __syncthreads();
    if (c < d) to(h, join_warps(parts, c));
    __syncthreads();  // all have read
  }
}

// Of the row's h-th head from its first on, in threads below head_dim.
template <Dtype T>
__device__ __forceinline__ void store_column(const AttentionParams& p, const AttentionForward& x,
                                             const Row& row, int h, const Column& column) {
  const int64_t head = row.h + h, c = threadIdx.x;
  const int64_t o_at = ((row.b * p.q_len + row.t) * p.heads + head) * p.head_dim + c;
  static_cast<Storage<T>*>(x.o)[o_at] = from_float<T>(column.result());
  if (c == 0) x.lse[(row.b * p.heads + head) * p.q_len + row.t] = column.log_sum();
}

// The results of a block's heads.
template <Dtype T, int kLanes, int kAtOnce, int kShare, HasBias kBias>
__device__ __forceinline__ void attend_heads(const AttentionParams& p, const AttentionForward& x,
                                             const Heads<T>& heads) {
  const RowSlices slices(heads.row);
  Column all[kShare];
  const int n_slices = static_cast<int>(slices_of(p.kv_len));
  for (int slice = 0; slice < n_slices; ++slice) {
    if (!slices.has(slice)) continue;
    make_slice<T, kLanes, kAtOnce, kShare, kBias>(
        p, x, heads, slice, [&](int h, const Column& column) { all[h].join(column); });
  }
  if (threadIdx.x >= p.head_dim) return;
#pragma unroll
  for (int h = 0; h < kShare; ++h) store_column<T>(p, x, heads.row, h, all[h]);
}

// Blocks that a multiprocessor holds.
template <int kAtOnce, int kShare>
inline constexpr int kResident = kAtOnce == kManyKeys ? 2
                                 : kShare == 4        ? 2
                                 : kShare == 2        ? 3
                                                      : 4;

template <Dtype T, int kLanes, int kAtOnce, int kShare, HasBias kBias>
__global__ void __launch_bounds__(kThreads, kResident<kAtOnce, kShare>)
    cached(const __grid_constant__ AttentionParams p, const AttentionForward x) {
  wait_for_previous();
  start_next();
  const Row row(p, x.positions, kShare, blockIdx.x);
  const int64_t at = ((row.b * p.q_len + row.t) * p.heads + row.h) * p.head_dim;
  const auto* q = static_cast<const Storage<T>*>(x.q) + at;
  attend_heads<T, kLanes, kAtOnce, kShare, kBias>(p, x, {row, q});
}

// One slice of one head; [row, head, slice] of x.slices: o, then top and sum.
template <Dtype T, int kLanes, int kAtOnce>
__device__ __forceinline__ void store_slice(const AttentionParams& p, const AttentionForward& x,
                                            const Heads<T>& heads, int slice) {
  const Row& row = heads.row;
  const int d = static_cast<int>(p.head_dim), c = static_cast<int>(threadIdx.x);
  const int64_t head = (row.b * p.q_len + row.t) * p.heads + row.h;
  float* const to = x.slices + (head * p.slices + slice) * (d + 2);
  const auto store = [&](int, const Column& column) {
    to[c] = column.o;
    if (c == 0) to[d] = column.top, to[d + 1] = column.sum;
  };
  make_slice<T, kLanes, kAtOnce, 1, HasBias::no>(p, x, heads, slice, store);
}
// A slice a block.
template <Dtype T, int kLanes, int kAtOnce>
__global__ void __launch_bounds__(kThreads, kResident<kAtOnce, 1>)
    cached_slice(const __grid_constant__ AttentionParams p, const AttentionForward x) {
  wait_for_previous();
  start_next();
  const Row row(p, x.positions, 1, blockIdx.x / p.slices);
  const int slice = static_cast<int>(blockIdx.x % p.slices);
  if (!RowSlices(row).has(slice)) return;
  const int64_t head = (row.b * p.q_len + row.t) * p.heads + row.h;
  const auto* q = static_cast<const Storage<T>*>(x.q) + head * p.head_dim;
  store_slice<T, kLanes, kAtOnce>(p, x, {row, q}, slice);
}
template <Dtype T>
__global__ void __launch_bounds__(kMaxHeadDim)
    join_slices(const __grid_constant__ AttentionParams p, const AttentionForward x) {
  wait_for_previous();
  start_next();
  const Row row(p, x.positions, 1, blockIdx.x);
  const RowSlices slices(row);
  const int c = static_cast<int>(threadIdx.x), d = static_cast<int>(p.head_dim);
  if (c >= d) return;
  const int64_t head = (row.b * p.q_len + row.t) * p.heads + row.h;
  Column all;
  for (int slice = 0; slice < p.slices; ++slice) {
    if (!slices.has(slice)) continue;
    const float* const from = x.slices + (head * p.slices + slice) * (d + 2);
    all.join({from[d], from[d + 1], from[c]});
  }
  store_column<T>(p, x, row, 0, all);
}

// What a chain starts from: the new rows before their rotation, and the caches.
struct NewRows {
  const void *q, *k, *v;
  void *k_cache, *v_cache;
  double frequencies[kMaxHeadDim / 2];
};

// A share of a tensor's row: two elements half a head apart.
template <Dtype T>
__device__ __forceinline__ void rotate_pair(const Storage<T>* from, Storage<T>* to, int half, int i,
                                            const Rotation& by) {
  const float2 pair = rotated(by, to_float<T>(from[i]), to_float<T>(from[i + half]));
  to[i] = from_float<T>(pair.x);
  to[i + half] = from_float<T>(pair.y);
}

// Rows of the caches up to the new one, into the cache of the device; nothing waits for them.
template <Dtype T>
__device__ __forceinline__ void prefetch_keys(const Keys<T>& keys) {
  constexpr int kAhead = kThreads / 2, kLine = 128, kBytes = sizeof(Storage<T>);
  const auto* of = reinterpret_cast<const char*>(threadIdx.x % 2 == 0 ? keys.k : keys.v);
  const int key = keys.first + static_cast<int>(threadIdx.x / 2);
  if (key >= keys.last || key >= keys.first + kAhead) return;
  const int64_t row_bytes = keys.stride * kBytes;
  for (int64_t at = 0; at < keys.head_dim * kBytes; at += kLine)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(of + key * row_bytes + at));
}

// What a block of a chain shares.
template <Dtype T, int kShare>
struct NewRowsShared {
  Rotation rotations[kMaxHeadDim / 2];
  alignas(16) Storage<T> queries[kShare * kMaxHeadDim];
};
// Where the new rows lie in the caches, and whether this block writes them.
struct NewPlace {
  int position;
  bool writes;
};

// The rotated queries of a block's heads, and the rows of its key and its value in the caches. By
// all threads; they wait for each other at its end.
template <Dtype T, int kShare>
__device__ __forceinline__ void take_new_rows(const AttentionParams& p, const Row& row,
                                              const NewRows& rows, const NewPlace& place,
                                              NewRowsShared<T, kShare>& shared) {
  const int d = static_cast<int>(p.head_dim), half = d / 2;
  const int64_t kv_head = row.h / (p.heads / p.kv_heads);
  const auto* q = static_cast<const Storage<T>*>(rows.q) + (row.b * p.heads + row.h) * d;
  const int64_t kv_at = (row.b * p.kv_heads + kv_head) * d;
  const auto* k = static_cast<const Storage<T>*>(rows.k) + kv_at;
  const auto* v = static_cast<const Storage<T>*>(rows.v) + kv_at;
  const int64_t cache_at = ((row.b * p.kv_len + place.position) * p.kv_heads + kv_head) * d;
  // Tasks: a pair of each of the block's queries, of the key, and of the value.
  const int n_tasks = (place.writes ? kShare + 2 : kShare) * half;
  for (int task = static_cast<int>(threadIdx.x); task < n_tasks; task += kThreads) {
    const int of = task / half, i = task % half;
    const Rotation& by = shared.rotations[i];
    if (of < kShare) {
      rotate_pair<T>(q + of * d, shared.queries + of * d, half, i, by);
    } else if (of == kShare) {
      rotate_pair<T>(k, static_cast<Storage<T>*>(rows.k_cache) + cache_at, half, i, by);
    } else {
      auto* to = static_cast<Storage<T>*>(rows.v_cache) + cache_at;
      to[i] = v[i];
      to[i + half] = v[i + half];
    }
  }
  __syncthreads();
}

// Ends behind wait_for_previous, with the position of the new row.
template <Dtype T, int kLanes, int kShare>
__device__ __forceinline__ int begin_step(const AttentionParams& p, const AttentionForward& x,
                                          const Row& row, const NewRows& rows,
                                          Rotation* rotations) {
  const int position = x.positions[row.b];
  for (int i = static_cast<int>(threadIdx.x); i < p.head_dim / 2; i += kThreads)
    rotations[i] = rotation(position, rows.frequencies[i], 1.0f);
  if (p.reads_ahead) {
    prefetch_keys<T>(keys_of<T, kLanes>(p, x, row));
    wait_for_previous();
  }
  start_next();
  __syncthreads();
  return position;
}

template <Dtype T, int kLanes, int kAtOnce, int kShare>
__global__ void __launch_bounds__(kThreads, kResident<kAtOnce, kShare>)
    cached_step(const __grid_constant__ AttentionParams p, const AttentionForward x,
                const __grid_constant__ NewRows rows) {
  __shared__ NewRowsShared<T, kShare> shared;
  if (!p.reads_ahead) wait_for_previous();
  const Row row(p, x.positions, kShare, blockIdx.x);
  const int position = begin_step<T, kLanes, kShare>(p, x, row, rows, shared.rotations);
  const bool writes = position >= 0 && position < p.kv_len;
  take_new_rows(p, row, rows, {position, writes}, shared);
  attend_heads<T, kLanes, kAtOnce, kShare, HasBias::no>(p, x, {row, shared.queries});
}

// One slice of one head a block, as cached_slice; that of the new row writes it.
template <Dtype T, int kLanes, int kAtOnce>
__global__ void __launch_bounds__(kThreads, kResident<kAtOnce, 1>)
    cached_slice_step(const __grid_constant__ AttentionParams p, const AttentionForward x,
                      const __grid_constant__ NewRows rows) {
  __shared__ NewRowsShared<T, 1> shared;
  if (!p.reads_ahead) wait_for_previous();
  const Row row(p, x.positions, 1, blockIdx.x / p.slices);
  const int slice = static_cast<int>(blockIdx.x % p.slices);
  const bool has_keys = RowSlices(row).has(slice);
  if (!has_keys && p.reads_ahead) wait_for_previous();
  if (!has_keys) return;
  Row of_slice = row;
  of_slice.first = max(row.first, RowSlices(row).first_of(slice) * kSliceKeys);
  const int position = begin_step<T, kLanes, 1>(p, x, of_slice, rows, shared.rotations);
  const bool writes = position < p.kv_len && position / kSliceKeys % kSlices == slice;
  take_new_rows(p, row, rows, {position, writes}, shared);
  store_slice<T, kLanes, kAtOnce>(p, x, {row, shared.queries}, slice);
}

template <Dtype T, int kAtOnce, int kShare, HasBias kBias = HasBias::no>
void launch_shared(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(attention_rows(p) / kShare);
  const auto kernel = p.head_dim <= 64    ? cached<T, 8, kAtOnce, kShare, kBias>
                      : p.head_dim <= 128 ? cached<T, 16, kAtOnce, kShare, kBias>
                                          : cached<T, 32, kAtOnce, kShare, kBias>;
  launch_early(kernel, {blocks, kThreads}, stream, p, x);
}
template <Dtype T>
void launch_slices(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  const auto rows = static_cast<unsigned>(attention_rows(p));
  const auto kernel = p.head_dim <= 64    ? cached_slice<T, 8, kManyKeys>
                      : p.head_dim <= 128 ? cached_slice<T, 16, kManyKeys>
                                          : cached_slice<T, 32, kManyKeys>;
  launch_early(kernel, {rows * p.slices, kThreads}, stream, p, x);
  launch_early(join_slices<T>, {rows, kMaxHeadDim}, stream, p, x);
}
template <Dtype T, int kAtOnce, int kShare>
void launch_step(const AttentionParams& p, const AttentionForward& x, const NewRows& rows,
                 cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(attention_rows(p) / kShare);
  const auto kernel = p.head_dim <= 64    ? cached_step<T, 8, kAtOnce, kShare>
                      : p.head_dim <= 128 ? cached_step<T, 16, kAtOnce, kShare>
                                          : cached_step<T, 32, kAtOnce, kShare>;
  launch_early(kernel, {blocks, kThreads}, stream, p, x, rows);
}
template <Dtype T>
void launch_slice_steps(const AttentionParams& p, const AttentionForward& x, const NewRows& rows,
                        cudaStream_t stream) {
  const auto n_rows = static_cast<unsigned>(attention_rows(p));
  const auto kernel = p.head_dim <= 64    ? cached_slice_step<T, 8, kManyKeys>
                      : p.head_dim <= 128 ? cached_slice_step<T, 16, kManyKeys>
                                          : cached_slice_step<T, 32, kManyKeys>;
  launch_early(kernel, {n_rows * p.slices, kThreads}, stream, p, x, rows);
  launch_early(join_slices<T>, {n_rows, kMaxHeadDim}, stream, p, x);
}
template <Dtype T>
void launch_step(const AttentionParams& p, const AttentionForward& x, const NewRows& rows,
                 cudaStream_t stream) {
  if (p.slices > 1) return launch_slice_steps<T>(p, x, rows, stream);
  if (p.keys_at_once == kManyKeys) return launch_step<T, kManyKeys, 1>(p, x, rows, stream);
  if (p.heads_of_block == 4) return launch_step<T, kFewKeys, 4>(p, x, rows, stream);
  p.heads_of_block == 2 ? launch_step<T, kFewKeys, 2>(p, x, rows, stream)
                        : launch_step<T, kFewKeys, 1>(p, x, rows, stream);
}

// The rotation whose result lies at an address; nothing where there is none.
std::optional<RopeStep> rotation_to(std::span<const Joined> rotations, const void* y) {
  for (const Joined& one : rotations) {
    const auto* kernel = dynamic_cast<const RopeKernel*>(one.kernel);
    if (kernel == nullptr) return std::nullopt;
    const RopeStep step = kernel->step_of(one.args);
    if (step.y == y) return step;
  }
  return std::nullopt;
}
class CachedAttention : public Prepared {
 public:
  explicit CachedAttention(const AttentionParams& p) : p_(p) {}
  void launch(const Launch& args) override {
    cached_attention(p_, forward_args(p_, args), args.stream);
  }

  bool launch_chain(std::span<const Joined> all) override;

 private:
  AttentionParams p_;
};

bool CachedAttention::launch_chain(std::span<const Joined> all) {
  if (all.size() != 5) return false;
  const auto* k_writer = dynamic_cast<const CacheKernel*>(all[2].kernel);
  const auto* v_writer = dynamic_cast<const CacheKernel*>(all[3].kernel);
  if (k_writer == nullptr || v_writer == nullptr) return false;
  const AttentionForward x = forward_args(p_, all[4].args);
  const auto q = rotation_to(all.first(2), x.q);
  const auto k = rotation_to(all.first(2), all[2].args.operands[octet::CacheWrite::x]);
  if (!q || !k || !std::ranges::equal(q->frequencies, k->frequencies)) return false;
  const CacheStep to_k = k_writer->step_of(all[2].args), to_v = v_writer->step_of(all[3].args);
  if (to_k.cache != x.k || to_v.cache != x.v || q->positions != x.positions ||
      std::ssize(q->frequencies) * 2 != p_.head_dim)
    return false;
  NewRows rows{.q = q->x,
               .k = k->x,
               .v = to_v.x,
               .k_cache = to_k.cache,
               .v_cache = to_v.cache,
               .frequencies = {}};
  std::ranges::copy(q->frequencies, rows.frequencies);
  const cudaStream_t stream = all[4].args.stream;
  p_.dtype == Dtype::fp16 ? launch_step<Dtype::fp16>(p_, x, rows, stream)
                          : launch_step<Dtype::bf16>(p_, x, rows, stream);
  return true;
}

}  // namespace

void cached_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  visit_high_precision(p.dtype, [&]<Dtype T>() {
    if (p.bias.is_there) return launch_shared<T, kFewKeys, 1, HasBias::yes>(p, x, stream);
    if (p.slices > 1) return launch_slices<T>(p, x, stream);
    if (p.keys_at_once == kManyKeys) return launch_shared<T, kManyKeys, 1>(p, x, stream);
    if (p.heads_of_block == 4) return launch_shared<T, kFewKeys, 4>(p, x, stream);
    p.heads_of_block == 2 ? launch_shared<T, kFewKeys, 2>(p, x, stream)
                          : launch_shared<T, kFewKeys, 1>(p, x, stream);
  });
}

std::unique_ptr<Prepared> prepare_cached_attention(const Request& request) {
  return std::make_unique<CachedAttention>(request.get<AttentionParams>());
}

}  // namespace octet::cuda
