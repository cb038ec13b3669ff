// Attention on tensor cores. A block of four warps owns 64 rows, queries or keys, sixteen a warp,
// and goes through tiles of the other side. Nothing is added across blocks: deterministic. The
// softmax is in powers of two: one multiplication prepares each score.
#include "backends/cuda/kernels/attention_mma.cuh"

namespace octet::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kOwn = kWarps * 16;  // rows of a block
constexpr int kKeys = 64;          // of a tile, forward
constexpr int kOther = 32;         // rows of a tile, backward
constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;
constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;

// Over the four lanes that share a row.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}

// Where element i of a lane's block n lies: its row among the warp's, its column among the tile's.
__device__ __forceinline__ int row_at(int i) {
  return static_cast<int>(threadIdx.x % 32) / 4 + i / 2 * 8;
}
__device__ __forceinline__ int column_at(int n, int i) {
  return n * 8 + static_cast<int>(threadIdx.x % 4) * 2 + i % 2;
}

__device__ __forceinline__ bool sees(const AttentionParams& p, int64_t query, int64_t key) {
  return key < p.seq && query < p.seq && (!p.causal || key <= query);
}

// The running softmax of a lane's two rows.
struct Softmax {
  float top[2], sum[2];
};

// Scores to exp2(score - top), and the sums so far shrunk to the new top.
template <int D>
__device__ __forceinline__ void softmax_tile(Softmax& state, float (&s)[kKeys / 8][4],
                                             float (&o)[D / 8][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = -INFINITY, sum = 0;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
      top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    }
    top = fmaxf(state.top[half], row_max(top));
    const float shrink = exp2f(state.top[half] - top);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        s[n][i] = exp2f(s[n][i] - top);
        sum += s[n][i];
      }
    }
    state.top[half] = top;
    state.sum[half] = state.sum[half] * shrink + sum;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      o[n][2 * half] *= shrink;
      o[n][2 * half + 1] *= shrink;
    }
  }
}

template <Dtype T, int D>
__global__ void __launch_bounds__(kThreads)
    forward(const __grid_constant__ AttentionParams p, const AttentionForward x, int64_t n_tiles) {
  extern __shared__ __align__(16) uint16_t shared[];
  uint16_t* const q = shared;
  uint16_t* const k = q + kOwn * kRowLength<D>;
  uint16_t* const v = k + kKeys * kRowLength<D>;
  const Place place = place_of(p.heads, n_tiles, kOwn, true);
  const Head head = head_of(p, p.heads, place.b, place.h);
  const Head kv_head = head_of(p, p.kv_heads, place.b, place.h / (p.heads / p.kv_heads));
  const int own = static_cast<int>(threadIdx.x / 32) * 16;
  const float factor = p.scale * kLog2E;
  load_rows<D, kOwn, kThreads>(p, x.q, head, place.first, q);
  float o[D / 8][4] = {};
  Softmax state{{-INFINITY, -INFINITY}, {0, 0}};
  const int64_t end = p.causal ? min(p.seq, place.first + kOwn) : p.seq;
  for (int64_t first = 0; first < end; first += kKeys) {
    __syncthreads();
    load_rows<D, kKeys, kThreads>(p, x.k, kv_head, first, k);
    load_rows<D, kKeys, kThreads>(p, x.v, kv_head, first, v);
    __syncthreads();
    float s[kKeys / 8][4];
    multiply_rows<T, D, kKeys>(q + own * kRowLength<D>, k, s);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t query = place.first + own + row_at(i), key = first + column_at(n, i);
        const bool seen = key < p.seq && (!p.causal || key <= query);
        s[n][i] = seen ? s[n][i] * factor : -INFINITY;
      }
    }
    softmax_tile<D>(state, s, o);
    add_products<T, D, kKeys>(s, v, o);
  }
  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = row_sum(state.sum[half]);
    const int64_t query = place.first + own + row_at(2 * half);
    inverse[half] = 1.0f / sum;
    if (threadIdx.x % 4 == 0 && query < p.seq) {
      x.lse[(place.b * p.heads + place.h) * p.seq + query] = state.top[half] * kLn2 + logf(sum);
    }
  }
  store_rows<T, D>(p, {x.o, head, place.first + own}, o, inverse);
}

// lse in powers of two, and delta, of one query.
struct RowTerms {
  float lse, delta;
};
__device__ __forceinline__ RowTerms row_terms(const AttentionParams& p, const AttentionBackward& x,
                                              int64_t first_of_head, int64_t query) {
  if (query >= p.seq) return {0, 0};
  return {x.lse[first_of_head + query] * kLog2E, x.delta[first_of_head + query]};
}

template <Dtype T, int D>
__global__ void __launch_bounds__(kThreads) backward_q(const __grid_constant__ AttentionParams p,
                                                       const AttentionBackward x, int64_t n_tiles) {
  extern __shared__ __align__(16) uint16_t shared[];
  uint16_t* const q = shared;
  uint16_t* const dout = q + kOwn * kRowLength<D>;
  uint16_t* const k = dout + kOwn * kRowLength<D>;
  uint16_t* const v = k + kOther * kRowLength<D>;
  const Place place = place_of(p.heads, n_tiles, kOwn, true);
  const Head head = head_of(p, p.heads, place.b, place.h);
  const Head kv_head = head_of(p, p.kv_heads, place.b, place.h / (p.heads / p.kv_heads));
  const int own = static_cast<int>(threadIdx.x / 32) * 16;
  const int64_t of_head = (place.b * p.heads + place.h) * p.seq;
  const float factor = p.scale * kLog2E;
  load_rows<D, kOwn, kThreads>(p, x.q, head, place.first, q);
  load_rows<D, kOwn, kThreads>(p, x.dout, head, place.first, dout);
  const RowTerms terms[2] = {row_terms(p, x, of_head, place.first + own + row_at(0)),
                             row_terms(p, x, of_head, place.first + own + row_at(2))};
  float sum[D / 8][4] = {};
  const int64_t end = p.causal ? min(p.seq, place.first + kOwn) : p.seq;
  for (int64_t first = 0; first < end; first += kOther) {
    __syncthreads();
    load_rows<D, kOther, kThreads>(p, x.k, kv_head, first, k);
    load_rows<D, kOther, kThreads>(p, x.v, kv_head, first, v);
    __syncthreads();
    float s[kOther / 8][4], dp[kOther / 8][4];
    multiply_rows<T, D, kOther>(q + own * kRowLength<D>, k, s);
    multiply_rows<T, D, kOther>(dout + own * kRowLength<D>, v, dp);
#pragma unroll
    for (int n = 0; n < kOther / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t query = place.first + own + row_at(i), key = first + column_at(n, i);
        const float probability = exp2f(s[n][i] * factor - terms[i / 2].lse);
        s[n][i] = sees(p, query, key) ? probability * (dp[n][i] - terms[i / 2].delta) : 0.0f;
      }
    }
    add_products<T, D, kOther>(s, k, sum);
  }
  store_rows<T, D>(p, {x.dq, head, place.first + own}, sum, {p.scale, p.scale});
}

// A block owns keys of one kv head and goes through the queries of all heads that read it.
template <Dtype T, int D>
__global__ void __launch_bounds__(kThreads)
    backward_kv(const __grid_constant__ AttentionParams p, const AttentionBackward x,
                int64_t n_tiles) {
  extern __shared__ __align__(16) uint16_t shared[];
  __shared__ RowTerms terms[kOther];
  uint16_t* const k = shared;
  uint16_t* const v = k + kOwn * kRowLength<D>;
  uint16_t* const q = v + kOwn * kRowLength<D>;
  uint16_t* const dout = q + kOther * kRowLength<D>;
  const Place place = place_of(p.kv_heads, n_tiles, kOwn, false);
  const Head kv_head = head_of(p, p.kv_heads, place.b, place.h);
  const int64_t n_shared = p.heads / p.kv_heads;
  const int own = static_cast<int>(threadIdx.x / 32) * 16;
  const float factor = p.scale * kLog2E;
  load_rows<D, kOwn, kThreads>(p, x.k, kv_head, place.first, k);
  load_rows<D, kOwn, kThreads>(p, x.v, kv_head, place.first, v);
  float sum_k[D / 8][4] = {}, sum_v[D / 8][4] = {};
  for (int64_t h = place.h * n_shared; h < (place.h + 1) * n_shared; ++h) {
    const Head head = head_of(p, p.heads, place.b, h);
    const int64_t of_head = (place.b * p.heads + h) * p.seq;
    for (int64_t first = p.causal ? place.first : 0; first < p.seq; first += kOther) {
      __syncthreads();
      load_rows<D, kOther, kThreads>(p, x.q, head, first, q);
      load_rows<D, kOther, kThreads>(p, x.dout, head, first, dout);
      if (threadIdx.x < kOther) {
        terms[threadIdx.x] = row_terms(p, x, of_head, first + threadIdx.x);
      }
      __syncthreads();
      float s[kOther / 8][4], dp[kOther / 8][4];
      multiply_rows<T, D, kOther>(k + own * kRowLength<D>, q, s);
      multiply_rows<T, D, kOther>(v + own * kRowLength<D>, dout, dp);
#pragma unroll
      for (int n = 0; n < kOther / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t key = place.first + own + row_at(i), query = first + column_at(n, i);
          const RowTerms& row = terms[column_at(n, i)];
          const bool seen = sees(p, query, key);
          s[n][i] = seen ? exp2f(s[n][i] * factor - row.lse) : 0.0f;
          dp[n][i] = seen ? s[n][i] * (dp[n][i] - row.delta) : 0.0f;
        }
      }
      add_products<T, D, kOther>(s, dout, sum_v);
      add_products<T, D, kOther>(dp, q, sum_k);
    }
  }
  store_rows<T, D>(p, {x.dk, kv_head, place.first + own}, sum_k, {p.scale, p.scale});
  store_rows<T, D>(p, {x.dv, kv_head, place.first + own}, sum_v, {1.0f, 1.0f});
}

// Calls f.template operator()<T, D>().
template <typename F>
void visit_kernel(const AttentionParams& p, F&& f) {
  const auto of_size = [&]<Dtype T>() {
    return p.head_dim <= 64 ? f.template operator()<T, 64>() : f.template operator()<T, 128>();
  };
  return p.dtype == Dtype::bf16 ? of_size.template operator()<Dtype::bf16>()
                                : of_size.template operator()<Dtype::fp16>();
}

template <int D>
constexpr size_t shared_bytes(int n_rows) {
  return static_cast<size_t>(n_rows) * kRowLength<D> * sizeof(uint16_t);
}
unsigned blocks_of(const AttentionParams& p, int64_t heads, int64_t n_tiles) {
  return static_cast<unsigned>(p.batch * heads * n_tiles);
}

}  // namespace

bool tensor_cores_take(const AttentionParams& p, std::initializer_list<const void*> addresses) {
  if (p.dtype == Dtype::f32 || p.head_dim % 8 != 0 || p.head_dim > 128) return false;
  for (const void* at : addresses) {
    if (reinterpret_cast<uintptr_t>(at) % 16 != 0) return false;
  }
  return true;
}

void tensor_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  const int64_t n_tiles = ceil_div(p.seq, kOwn);
  const unsigned blocks = blocks_of(p, p.heads, n_tiles);
  visit_kernel(p, [&]<Dtype T, int D>() {
    constexpr size_t kBytes = shared_bytes<D>(kOwn + 2 * kKeys);
    allow_shared(forward<T, D>, kBytes);
    forward<T, D><<<blocks, kThreads, kBytes, stream>>>(p, x, n_tiles);
  });
  check_launch("attention");
}

void tensor_attention_grad(const AttentionParams& p, const AttentionBackward& x,
                           cudaStream_t stream) {
  attention_deltas(p, x, stream);
  const int64_t n_tiles = ceil_div(p.seq, kOwn);
  const unsigned q_blocks = blocks_of(p, p.heads, n_tiles);
  const unsigned kv_blocks = blocks_of(p, p.kv_heads, n_tiles);
  visit_kernel(p, [&]<Dtype T, int D>() {
    constexpr size_t kBytes = shared_bytes<D>(2 * kOwn + 2 * kOther);
    allow_shared(backward_q<T, D>, kBytes);
    allow_shared(backward_kv<T, D>, kBytes);
    backward_q<T, D><<<q_blocks, kThreads, kBytes, stream>>>(p, x, n_tiles);
    backward_kv<T, D><<<kv_blocks, kThreads, kBytes, stream>>>(p, x, n_tiles);
  });
  check_launch("attention_grad");
}

}  // namespace octet::cuda
