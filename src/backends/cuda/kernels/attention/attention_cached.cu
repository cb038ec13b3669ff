// Attention over a KV cache, for any type and head size, with f32 products: a block makes one row
// of one head, or of up to four that share their keys, so that it reads these once. Keys are dealt
// to groups of lanes that hold eight columns a lane, each with a softmax of its own; these are
// joined in a fixed order, which is the same for every number of heads.
#include "backends/cuda/kernels/attention/attention.h"
#include "backends/cuda/kernels/attention/attention_bias.cuh"
#include "backends/cuda/kernels/common/early_start.cuh"
#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/kernels/common/fast_math.cuh"

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

  __device__ __forceinline__ Row(const AttentionParams& p, const int32_t* positions, int share) {
    const int64_t n_blocks = p.heads / share;
    h = blockIdx.x % n_blocks * share;
    t = blockIdx.x / n_blocks % p.q_len;
    b = blockIdx.x / (n_blocks * p.q_len);
    last = min(positions[b * p.q_len + t], static_cast<int>(p.kv_len) - 1);
    first = p.window > 0 ? max(last - static_cast<int>(p.window) + 1, 0) : 0;
  }
};

// Column `c` of the warps' partials, joined in their order.
__device__ __forceinline__ void join_warps(const Partial (&parts)[kWarps][32], int lane, int i,
                                           Partial& all) {
  for (int w = 0; w < kWarps; ++w) all.top = fmaxf(all.top, parts[w][lane].top);
  for (int w = 0; w < kWarps; ++w) {
    const Partial& part = parts[w][lane];
    const float by = all.top == -INFINITY ? 0.0f : fast_exp2(part.top - all.top);
    all.sum = __fmaf_rn(part.sum, by, all.sum);
    all.o[0] = __fmaf_rn(part.o[i], by, all.o[0]);
  }
}

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
#pragma unroll
  for (int h = 0; h < kShare; ++h) {
#pragma unroll
    for (int step = kLanes; step < 32; step *= 2) mine[h].join(step);
  }
}

enum class HasBias : bool { no, yes };

template <Dtype T, int kLanes, int kAtOnce, int kShare, HasBias kBias>
__global__ void __launch_bounds__(kThreads)
    cached(const __grid_constant__ AttentionParams p, const AttentionForward x) {
  __shared__ Partial parts[kWarps][32];
  wait_for_previous();
  start_next();
  const Row row(p, x.positions, kShare);
  const int d = static_cast<int>(p.head_dim), lane = static_cast<int>(threadIdx.x % 32);
  const int64_t stride = p.kv_heads * d, kv_head = row.h / (p.heads / p.kv_heads);
  const int64_t at = row.b * p.kv_len * stride + kv_head * d;
  const Keys<T> keys{.k = static_cast<const Storage<T>*>(x.k) + at,
                     .v = static_cast<const Storage<T>*>(x.v) + at,
                     .stride = stride,
                     .column = lane % kLanes * 8,
                     .head_dim = d,
                     .first = row.first,
                     .last = row.last};
  const int64_t o_at = ((row.b * p.q_len + row.t) * p.heads + row.h) * d;
  float q[kShare][8];
  Partial mine[kShare];
#pragma unroll
  for (int h = 0; h < kShare; ++h) {
    mine[h] = {-INFINITY, 0, {}};
    load_eight<T>(static_cast<const Storage<T>*>(x.q) + o_at + h * d, keys.column, d, q[h]);
#pragma unroll
    for (float& one : q[h]) one *= p.scale * kLog2E;
  }
  if constexpr (kBias == HasBias::yes) {
    static_assert(kShare == 1);  // each head has its own
    const Bias bias(p, x.bias, row.b, row.h);
    const auto with_bias = [&](float score, int key) {
      return __fmaf_rn(bias.at(static_cast<int>(row.t), key), kLog2E, score);
    };
    attend<T, kLanes, kAtOnce>(keys, q, with_bias, mine);
  } else {
    attend<T, kLanes, kAtOnce>(
        keys, q, [](float score, int) { return score; }, mine);
  }
  const int c = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int h = 0; h < kShare; ++h) {
    if (h > 0) __syncthreads();  // all have read the head before
    parts[threadIdx.x / 32][lane] = mine[h];
    __syncthreads();
    if (c >= d) continue;
    Partial all{-INFINITY, 0, {}};
    join_warps(parts, c / 8, c % 8, all);
    const float result = all.sum == 0 ? 0.0f : all.o[0] / all.sum;
    static_cast<Storage<T>*>(x.o)[o_at + h * d + c] = from_float<T>(result);
    if (c == 0)
      x.lse[(row.b * p.heads + row.h + h) * p.q_len + row.t] = all.top * kLn2 + logf(all.sum);
  }
}

template <Dtype T, int kAtOnce, int kShare, HasBias kBias = HasBias::no>
void launch_shared(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(attention_rows(p) / kShare);
  const auto kernel = p.head_dim <= 64    ? cached<T, 8, kAtOnce, kShare, kBias>
                      : p.head_dim <= 128 ? cached<T, 16, kAtOnce, kShare, kBias>
                                          : cached<T, 32, kAtOnce, kShare, kBias>;
  launch_early(kernel, {blocks, kThreads}, stream, p, x);
}

}  // namespace

void cached_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  visit_high_precision(p.dtype, [&]<Dtype T>() {
    if (p.bias.is_there) return launch_shared<T, kFewKeys, 1, HasBias::yes>(p, x, stream);
    if (p.keys_at_once == kManyKeys) return launch_shared<T, kManyKeys, 1>(p, x, stream);
    if (p.heads_of_block == 4) return launch_shared<T, kFewKeys, 4>(p, x, stream);
    p.heads_of_block == 2 ? launch_shared<T, kFewKeys, 2>(p, x, stream)
                          : launch_shared<T, kFewKeys, 1>(p, x, stream);
  });
}

}  // namespace octet::cuda
