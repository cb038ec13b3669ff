// Attention over a KV cache, for any type and head size, with f32 products: a block makes one row
// of one head. Its keys are dealt to groups of lanes that hold eight columns a lane, each with a
// softmax of its own; these are joined in a fixed order.
#include "backends/cuda/kernels/attention.h"
#include "backends/cuda/kernels/element.cuh"
#include "backends/cuda/kernels/fast_math.cuh"

namespace octet::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kAtOnce = 2;  // keys of a group whose loads are in flight together
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

// The row of the block, and the keys that it sees.
struct Row {
  int64_t b, h, t;
  int first, last;

  __device__ __forceinline__ Row(const AttentionParams& p, const int32_t* positions) {
    h = blockIdx.x % p.heads;
    t = blockIdx.x / p.heads % p.seq;
    b = blockIdx.x / (p.heads * p.seq);
    last = min(positions[b * p.seq + t], static_cast<int>(p.capacity) - 1);
    first = p.window > 0 ? max(last - static_cast<int>(p.window) + 1, 0) : 0;
  }
};

// Of the warps' partials, joined in their order, column `c`.
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

template <Dtype T, int kLanes>
__global__ void __launch_bounds__(kThreads)
    cached(const __grid_constant__ AttentionParams p, const AttentionForward x) {
  __shared__ Partial parts[kWarps][32];
  const Row row(p, x.positions);
  const int d = static_cast<int>(p.head_dim), lane = static_cast<int>(threadIdx.x % 32);
  const int column = lane % kLanes * 8;
  const int64_t stride = p.kv_heads * d, kv_head = row.h / (p.heads / p.kv_heads);
  const int64_t at = row.b * p.capacity * stride + kv_head * d;
  const auto* k = static_cast<const Storage<T>*>(x.k) + at;
  const auto* v = static_cast<const Storage<T>*>(x.v) + at;
  const int64_t o_at = ((row.b * p.seq + row.t) * p.heads + row.h) * d;
  float q[8];
  load_eight<T>(static_cast<const Storage<T>*>(x.q) + o_at, column, d, q);
#pragma unroll
  for (float& one : q) one *= p.scale * kLog2E;
  constexpr int kGroups = kThreads / kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  Partial mine{-INFINITY, 0, {}};
  for (int from = row.first; from <= row.last; from += kGroups * kAtOnce) {
    float score[kAtOnce], values[kAtOnce][8];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int key = min(from + u * kGroups + group, row.last);
      float keys[8];
      load_eight<T>(k + key * stride, column, d, keys);
      load_eight<T>(v + key * stride, column, d, values[u]);
      score[u] = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) score[u] = __fmaf_rn(q[i], keys[i], score[u]);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
      for (int step = kLanes / 2; step > 0; step /= 2) {
        score[u] += __shfl_xor_sync(kWholeWarp, score[u], step);
      }
      const bool there = from + u * kGroups + group <= row.last;
      mine.add(there ? score[u] : -INFINITY, values[u]);
    }
  }
#pragma unroll
  for (int step = kLanes; step < 32; step *= 2) mine.join(step);
  parts[threadIdx.x / 32][lane] = mine;
  __syncthreads();
  const int c = static_cast<int>(threadIdx.x);
  if (c >= d) return;
  Partial all{-INFINITY, 0, {}};
  join_warps(parts, c / 8, c % 8, all);
  const float result = all.sum == 0 ? 0.0f : all.o[0] / all.sum;
  static_cast<Storage<T>*>(x.o)[o_at + c] = from_float<T>(result);
  if (c == 0) x.lse[(row.b * p.heads + row.h) * p.seq + row.t] = all.top * kLn2 + logf(all.sum);
}

}  // namespace

void cached_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(attention_rows(p));
  visit_wide(p.dtype, [&]<Dtype T>() {
    if (p.head_dim <= 64) {
      cached<T, 8><<<blocks, kThreads, 0, stream>>>(p, x);
    } else if (p.head_dim <= 128) {
      cached<T, 16><<<blocks, kThreads, 0, stream>>>(p, x);
    } else {
      cached<T, 32><<<blocks, kThreads, 0, stream>>>(p, x);
    }
  });
  check_launch("attention over a cache");
}

}  // namespace octet::cuda
