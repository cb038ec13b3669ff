// The gradient of attention's bias on tensor cores: the softmax and what its gradient multiplies
// are made once more, from log-sum-exp and the sums of do * o.
#include "backends/cuda/kernels/attention/attention_tensor.cuh"
#include "backends/cuda/kernels/common/fast_math.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = kAttentionThreads;
constexpr int kBiasRows = kAttentionWarps * 16, kBiasKeys = 64;

using Sums = float[kBiasKeys / 8][4];  // of a warp's sixteen rows, as of Products

__device__ __forceinline__ void store_sums(const BiasOut& out, int own, const Sums& sum) {
#pragma unroll
  for (int n = 0; n < kBiasKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int query = out.place.query + own + row_at(i), key = out.place.key + column_at(n, i);
      if (query < out.p.q_len && key < out.p.kv_len) out.write(query, key, sum[n][i]);
    }
  }
}

// Sums of all rows, in their order.
__device__ __forceinline__ void add_rows(const BiasOut& out, int own, const Sums& sum,
                                         float* shared) {
#pragma unroll
  for (int n = 0; n < kBiasKeys / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) shared[(own + row_at(i)) * kBiasKeys + column_at(n, i)] = sum[n][i];
  }
  __syncthreads();
  const int own_key = static_cast<int>(threadIdx.x), key = out.place.key + own_key;
  if (own_key >= kBiasKeys || key >= out.p.kv_len) return;
  float all = 0;
  for (int row = 0; row < kBiasRows; ++row) all += shared[row * kBiasKeys + own_key];
  out.write(0, key, all);
}

// The bias's gradient: a block owns 64 queries, 16 a warp, and 64 keys, and goes through the
// entries and heads that share it, in order; where all queries share a row, through their tiles
// too.
template <Dtype T, int D>
__global__ void __launch_bounds__(kThreads, 2)
    backward_bias(const __grid_constant__ AttentionParams p, const AttentionBackward x,
                  BiasGrid grid) {
  constexpr int kTile = kBiasRows * kRowLength<D>;
  static_assert(kBiasRows == kBiasKeys);
  extern __shared__ __align__(16) uint16_t shared[];
  const BiasPlace place = grid.place(kBiasRows, kBiasKeys);
  const BiasShare share(p, place, kBiasRows);
  const int own = static_cast<int>(threadIdx.x / 32) * 16;
  float sum[kBiasKeys / 8][4] = {};
  for (int i = 0; i < share.n; ++i) {
    const auto [b, h, first] = share.at(i);
    const RangeMask mask(p, x.ranges, b);
    const KeyRange keys = keys_of(p, mask, first, kBiasRows, 1);
    if (keys.begin >= place.key + kBiasKeys || keys.end <= place.key) continue;
    const Head head = head_of(p, p.heads, b, h);
    const Head kv_head = head_of(p, p.kv_len, p.kv_heads, b, h / (p.heads / p.kv_heads));
    __syncthreads();  // all have read the tiles before
    fetch_rows<D, kBiasRows, kThreads>(p, x.q, head, first, shared);
    fetch_rows<D, kBiasRows, kThreads>(p, x.dout, head, first, shared + kTile);
    fetch_rows<D, kBiasKeys, kThreads>(p, x.k, kv_head, place.key, shared + 2 * kTile);
    fetch_rows<D, kBiasKeys, kThreads>(p, x.v, kv_head, place.key, shared + 3 * kTile);
    wait_for_tiles();
    Products<1, kBiasKeys> s, dp;
    const uint16_t* const q = shared + own * kRowLength<D>;
    multiply_rows<T, D, 1, kBiasKeys>(q, shared + 2 * kTile, s);
    multiply_rows<T, D, 1, kBiasKeys>(q + kTile, shared + 3 * kTile, dp);
    add_bias<1, kBiasKeys>(Bias(p, x.bias, b, h), p.scale * kLog2E, first + own, place.key, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first + own + row_at(2 * half);
      const bool there = query < p.q_len;
      const int64_t at = (b * p.heads + h) * p.q_len + (there ? query : 0);
      const float lse = shown_lse(x.lse[at]) * kLog2E, delta = x.delta[at];
      const int first_key = mask.first_key(query), last_key = there ? mask.last_key(query) : -1;
#pragma unroll
      for (int n = 0; n < kBiasKeys / 8; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const int key = place.key + column_at(n, e);
          const float gradient = fast_exp2(s[0][n][e] - lse) * (dp[0][n][e] - delta);
          if (key >= first_key && key <= last_key) sum[n][e] += gradient;
        }
      }
    }
  }
  const BiasOut out{p, x.dbias, place};
  if (p.bias.query != 0) return store_sums(out, own, sum);
  __syncthreads();
  add_rows(out, own, sum, reinterpret_cast<float*>(shared));
}

template <int D>
constexpr size_t kBiasBytes = rows_bytes<D>(2 * kBiasRows + 2 * kBiasKeys);

}  // namespace

void tensor_bias_gradient(const AttentionParams& p, const AttentionBackward& x,
                          cudaStream_t stream) {
  const BiasGrid grid(p, kBiasRows, kBiasKeys);
  visit_tensor_kernel(p, [&]<Dtype T, int D>() {
    allow_shared_alone(backward_bias<T, D>, kBiasBytes<D>);
    backward_bias<T, D><<<grid.blocks(), kThreads, kBiasBytes<D>, stream>>>(p, x, grid);
  });
}

}  // namespace octet::cuda
