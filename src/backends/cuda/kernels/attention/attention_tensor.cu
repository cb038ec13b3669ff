// Attention forward on tensor cores, over the call's own keys or a KV cache: a block owns 128
// queries, 32 a warp.
#include "backends/cuda/kernels/attention/attention_tensor.cuh"
#include "backends/cuda/kernels/common/fast_math.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = kAttentionThreads;
constexpr int kBlocks = 2;             // of sixteen rows, a warp
constexpr int kOfWarp = kBlocks * 16;  // queries
constexpr int kQueries = kAttentionWarps * kOfWarp;
constexpr int kKeys = 32;  // of a tile

// Over the four lanes that share a row.
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kWholeWarp, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}

// The running softmax of a lane's two rows of sixteen, of scores times `factor`, which is above 0.
// A shift is raised only where exponentials would grow beyond 2^8: o is rarely multiplied again.
struct Softmax {
  float shift[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

  // Scores to exp2(factor * score - shift); o is that of the shift so far.
  template <int D>
  __device__ __forceinline__ void add(float factor, float (&s)[kKeys / 8][4],
                                      float (&o)[D / 8][4]) {
    constexpr float kRoom = 8;
    float shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = -INFINITY;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      }
      most = row_max(most) * factor;
      const float before = shift[half];
      if (most > before + kRoom) shift[half] = most;
      const float by = shift[half] == -INFINITY ? 0.0f : shift[half];  // no key seen so far
      shrink[half] = fast_exp2(before - by);
      float total = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[n][i] = fast_exp2(__fmaf_rn(s[n][i], factor, -by));
          total += s[n][i];
        }
      }
      sum[half] = sum[half] * shrink[half] + total;
    }
    if (!__any_sync(kWholeWarp, shrink[0] != 1 || shrink[1] != 1)) return;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[n][i] *= shrink[i / 2];
    }
  }
};

// The scores of the warp's queries from `first_row` on with the keys of a tile: minus infinity
// where they do not see them.
template <typename M>
__device__ __forceinline__ void hide_unseen(const M& mask, int first_row, int tile,
                                            Products<kBlocks, kKeys>& s) {
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_row + m * 16 + row_at(2 * half);
      const int first = mask.first_key(query), last = mask.last_key(query);
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int key = tile + column_at(n, i);
          if (key < first || key > last) s[m][n][i] = -INFINITY;
        }
      }
    }
  }
}
__device__ __forceinline__ void negate(Products<kBlocks, kKeys>& s) {
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = -s[m][n][i];
    }
  }
}

// Log of the sum of exponentials, and what the rows of o are divided by; o = 0 of a query that sees
// no key.
__device__ __forceinline__ void finish(float* lse_of_head, int64_t seq, int first_row,
                                       const Softmax (&state)[kBlocks],
                                       float (&inverse)[kBlocks][2]) {
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = row_sum(state[m].sum[half]);
      inverse[m][half] = sum == 0 ? 0.0f : 1.0f / sum;
      const int query = first_row + m * 16 + row_at(2 * half);
      if (threadIdx.x % 4 == 0 && query < seq) {
        lse_of_head[query] = state[m].shift[half] * kLn2 + logf(sum);
      }
    }
  }
}

// A call's own keys, or a cache's.
template <typename Form>
struct GivenKeys : Form {
  static __device__ __forceinline__ int64_t rows(const AttentionParams& p) { return Form::keys(p); }
  static __device__ __forceinline__ auto mask(const AttentionParams& p, const AttentionForward& x,
                                              int64_t b) {
    return typename Form::Mask(p, x.ranges, b);
  }
};
struct CachedKeys {
  static constexpr bool kHasBias = false;
  static __device__ __forceinline__ int64_t rows(const AttentionParams& p) { return p.kv_len; }
  static __device__ __forceinline__ CachedMask mask(const AttentionParams& p,
                                                    const AttentionForward& x, int64_t b) {
    return CachedMask(p, x.positions, b);
  }
};

template <Dtype T, int D, typename Keys>
__global__ void __launch_bounds__(kThreads, 2)
    forward(const __grid_constant__ AttentionParams p, const AttentionForward x, int64_t n_tiles) {
  constexpr int kTile = kKeys * kRowLength<D>;
  extern __shared__ __align__(16) uint16_t shared[];
  uint16_t* const q = shared;
  uint16_t* const tiles = q + kQueries * kRowLength<D>;  // k, v; the next k, v
  const Place place = place_of(p.heads, n_tiles, kQueries, true);
  const Head head = head_of(p, p.heads, place.b, place.h);
  const Head kv_head =
      head_of(p, Keys::rows(p), p.kv_heads, place.b, place.h / (p.heads / p.kv_heads));
  const auto mask = Keys::mask(p, x, place.b);
  const KeyRange keys = keys_of(p, mask, static_cast<int>(place.first), kQueries, kKeys);
  const auto fetch = [&](int tile, int stage) {
    uint16_t* const k = tiles + 2 * stage * kTile;
    fetch_rows<D, kKeys, kThreads>(p, x.k, kv_head, tile, k);
    fetch_rows<D, kKeys, kThreads>(p, x.v, kv_head, tile, k + kTile);
  };
  fetch_rows<D, kQueries, kThreads>(p, x.q, head, place.first, q);
  fetch(keys.begin, 0);
  const int own = static_cast<int>(threadIdx.x / 32) * kOfWarp;
  const int first_row = static_cast<int>(place.first) + own;
  const WarpKeys seen(p, mask, first_row, first_row + kOfWarp - 1);
  const float factor = fmaxf(fabsf(p.scale) * kLog2E, 0x1p-126f);  // hidden scores stay infinite
  Products<kBlocks, D> o = {};
  Softmax state[kBlocks];
  for (int tile = keys.begin, stage = 0; tile < keys.end; tile += kKeys, stage ^= 1) {
    wait_for_tiles();
    if (tile + kKeys < keys.end) fetch(tile + kKeys, stage ^ 1);
    if (!seen.any(tile, kKeys)) continue;
    const uint16_t* const k = tiles + 2 * stage * kTile;
    Products<kBlocks, kKeys> s;
    multiply_rows<T, D, kBlocks, kKeys>(q + own * kRowLength<D>, k, s);
    if constexpr (Keys::kHasBias) {
      add_bias<kBlocks, kKeys>(Bias(p, x.bias, place.b, place.h), p.scale * kLog2E, first_row, tile,
                               s);
    } else if (p.scale < 0) {
      negate(s);
    }
    if (!seen.all(tile, kKeys)) hide_unseen(mask, first_row, tile, s);
    const float by = Keys::kHasBias ? 1.0f : factor;
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) state[m].template add<D>(by, s[m], o[m]);
    add_products<T, D, kBlocks, kKeys>(s, k + kTile, o);
  }
  if (keys.begin >= keys.end) wait_for_tiles();  // its rows are about to be written over
  float inverse[kBlocks][2];
  float* const lse = x.lse + (place.b * p.heads + place.h) * p.q_len;
  finish(lse, p.q_len, first_row, state, inverse);
  store_rows<T, D, kBlocks>(p, {x.o, head, first_row}, o, inverse, q + own * kRowLength<D>);
}

template <typename Keys>
void launch_tensor(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  const int64_t n_tiles = ceil_div(p.q_len, kQueries);
  const unsigned blocks = attention_blocks(p, p.heads, n_tiles);
  visit_tensor_kernel(p, [&]<Dtype T, int D>() {
    constexpr size_t kBytes = rows_bytes<D>(kQueries + 4 * kKeys);
    allow_shared_alone(forward<T, D, Keys>, kBytes);
    forward<T, D, Keys><<<blocks, kThreads, kBytes, stream>>>(p, x, n_tiles);
  });
  check_launch("attention");
}

}  // namespace

void tensor_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  if (p.form == AttentionForm::cached) return launch_tensor<CachedKeys>(p, x, stream);
  visit_form(p, [&]<typename Form>() { launch_tensor<GivenKeys<Form>>(p, x, stream); });
}

}  // namespace octet::cuda
