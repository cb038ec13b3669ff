// Attention backward on tensor cores: one kernel owns queries and makes dq, one owns keys and makes
// dk and dv. Both make the softmax again from its log-sum-exp.
#include <algorithm>

#include "backends/cuda/kernels/attention/attention_tensor.cuh"
#include "backends/cuda/kernels/common/fast_math.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = kAttentionThreads;

// Sums of do * o of the row by as many lanes as it has packs of 8 elements, in the order of lse.
template <Dtype T, int D>
__global__ void __launch_bounds__(kThreads)
    row_deltas(const __grid_constant__ AttentionParams p, const AttentionBackward x) {
  constexpr int kLanes = D / 8;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  if (i >= p.batch * p.heads * p.q_len) return;  // whole rows: all of their lanes
  const int64_t t = i % p.q_len, h = i / p.q_len % p.heads, b = i / (p.q_len * p.heads);
  const Head head = head_of(p, p.heads, b, h);
  const int column = static_cast<int>(threadIdx.x % kLanes) * 8;
  const int64_t at = head.first + t * head.stride + column;
  float sum = 0;
  if (column < p.head_dim) {
    const auto dout = load_pack<8>(static_cast<const uint16_t*>(x.dout) + at);
    const auto o = load_pack<8>(static_cast<const uint16_t*>(x.o) + at);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      sum = __fmaf_rn(to_float<T>(dout.at[c]), to_float<T>(o.at[c]), sum);
    }
  }
  const uint32_t lanes = __activemask();
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(lanes, sum, step);
  if (column == 0) x.delta[i] = sum;
}

// dq: 128 queries a block, 32 a warp.
constexpr int kBlocks = 2;  // of sixteen queries
constexpr int kOfWarp = kBlocks * 16;
constexpr int kQueries = kAttentionWarps * kOfWarp;
constexpr int kKeys = 32;  // of a tile

// A lane's queries of its warp: lse in powers of two, delta, and what they see.
struct QueryTerms {
  float lse[kBlocks][2], delta[kBlocks][2];
  int first_key[kBlocks][2], last_key[kBlocks][2];

  template <typename M>
  __device__ __forceinline__ QueryTerms(const AttentionParams& p, const AttentionBackward& x,
                                        const M& mask, int64_t of_head, int first_row) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = first_row + m * 16 + row_at(2 * half);
        const bool there = query < p.q_len;
        lse[m][half] = there ? x.lse[of_head + query] * kLog2E : 0.0f;
        if constexpr (!M::kIsSquare) lse[m][half] = shown_lse(lse[m][half]);
        delta[m][half] = there ? x.delta[of_head + query] : 0.0f;
        first_key[m][half] = mask.first_key(query);
        last_key[m][half] = there ? mask.last_key(query) : -1;
      }
    }
  }
  // s to ds / scale.
  __device__ __forceinline__ void gradient(Products<kBlocks, kKeys>& s,
                                           const Products<kBlocks, kKeys>& dp, float factor,
                                           int tile, bool whole) const {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = tile + column_at(n, i), half = i / 2;
          const bool seen = whole || (key >= first_key[m][half] && key <= last_key[m][half]);
          const float p = fast_exp2(__fmaf_rn(s[m][n][i], factor, -lse[m][half]));
          s[m][n][i] = seen ? p * (dp[m][n][i] - delta[m][half]) : 0.0f;
        }
      }
    }
  }
};

template <Dtype T, int D, typename Form>
__global__ void __launch_bounds__(kThreads, 2)
    backward_q(const __grid_constant__ AttentionParams p, const AttentionBackward x,
               int64_t n_tiles) {
  constexpr int kTile = kKeys * kRowLength<D>;
  extern __shared__ __align__(16) uint16_t shared[];
  uint16_t* const q = shared;
  uint16_t* const dout = q + kQueries * kRowLength<D>;
  uint16_t* const tiles = dout + kQueries * kRowLength<D>;  // k, v; the next k, v
  const Place place = place_of(p.heads, n_tiles, kQueries, true);
  const Head head = head_of(p, p.heads, place.b, place.h);
  const Head kv_head =
      head_of(p, Form::keys(p), p.kv_heads, place.b, place.h / (p.heads / p.kv_heads));
  const typename Form::Mask mask(p, x.ranges, place.b);
  const KeyRange keys = keys_of(p, mask, static_cast<int>(place.first), kQueries, kKeys);
  const auto fetch = [&](int tile, int stage) {
    uint16_t* const k = tiles + 2 * stage * kTile;
    fetch_rows<D, kKeys, kThreads>(p, x.k, kv_head, tile, k);
    fetch_rows<D, kKeys, kThreads>(p, x.v, kv_head, tile, k + kTile);
  };
  fetch_rows<D, kQueries, kThreads>(p, x.q, head, place.first, q);
  fetch_rows<D, kQueries, kThreads>(p, x.dout, head, place.first, dout);
  fetch(keys.begin, 0);
  const int own = static_cast<int>(threadIdx.x / 32) * kOfWarp;
  const int first_row = static_cast<int>(place.first) + own;
  const WarpKeys seen(p, mask, first_row, first_row + kOfWarp - 1);
  const QueryTerms terms(p, x, mask, (place.b * p.heads + place.h) * p.q_len, first_row);
  const float factor = p.scale * kLog2E, by = Form::kHasBias ? 1.0f : factor;
  Products<kBlocks, D> sum = {};
  for (int tile = keys.begin, stage = 0; tile < keys.end; tile += kKeys, stage ^= 1) {
    wait_for_tiles();
    if (tile + kKeys < keys.end) fetch(tile + kKeys, stage ^ 1);
    if (!seen.any(tile, kKeys)) continue;
    const uint16_t* const k = tiles + 2 * stage * kTile;
    Products<kBlocks, kKeys> s, dp;
    multiply_rows<T, D, kBlocks, kKeys>(q + own * kRowLength<D>, k, s);
    multiply_rows<T, D, kBlocks, kKeys>(dout + own * kRowLength<D>, k + kTile, dp);
    if constexpr (Form::kHasBias)
      add_bias<kBlocks, kKeys>(Bias(p, x.bias, place.b, place.h), factor, first_row, tile, s);
    if (seen.all(tile, kKeys)) {
      terms.gradient(s, dp, by, tile, true);
    } else {
      terms.gradient(s, dp, by, tile, false);
    }
    add_products<T, D, kBlocks, kKeys>(s, k, sum);
  }
  if constexpr (!Form::Mask::kIsSquare) {
    if (keys.begin >= keys.end) wait_for_tiles();  // its rows are about to be written over
  }
  store_rows<T, D, kBlocks>(p, {x.dq, head, first_row}, sum, p.scale, q + own * kRowLength<D>);
}

// dk and dv: keys of one kv head, as many a warp as its registers hold the sums of, against the
// queries of all heads that read it. What is read of the queries serves all of them.
template <int D>
constexpr int kKeyBlocks = D <= 64 ? 2 : 1;  // of sixteen keys
template <int D>
constexpr int kOwnKeys = kAttentionWarps* kKeyBlocks<D> * 16;
constexpr int kTileQueries = 32;

// Terms of a tile's queries.
struct SquareTerms {
  float lse[kTileQueries], delta[kTileQueries];
  int start[kTileQueries];  // of the range

  template <typename M>
  __device__ __forceinline__ void fetch(const AttentionBackward& x, const M& mask, int64_t of_head,
                                        int first) {
    const int i = static_cast<int>(threadIdx.x);
    if (i >= kTileQueries) return;
    const bool there = first + i < mask.seq();
    const int64_t at = there ? first + i : 0;
    fetch_4_bytes(&lse[i], x.lse + of_head + at, there);
    fetch_4_bytes(&delta[i], x.delta + of_head + at, there);
    if (mask.starts() != nullptr) fetch_4_bytes(&start[i], mask.starts() + at, there);
  }
};
struct RangeTerms : SquareTerms {
  int end[kTileQueries];

  __device__ __forceinline__ void fetch(const AttentionBackward& x, const RangeMask& mask,
                                        int64_t of_head, int first) {
    SquareTerms::fetch(x, mask, of_head, first);
    const int i = static_cast<int>(threadIdx.x);
    if (i >= kTileQueries || mask.ends() == nullptr) return;
    const bool there = first + i < mask.seq();
    fetch_4_bytes(&end[i], mask.ends() + (there ? first + i : 0), there);
  }
};
template <typename M>
using TileTerms = std::conditional_t<M::kIsSquare, SquareTerms, RangeTerms>;

// B blocks of a warp's keys from `key` on against the tile of queries from `query` on.
template <typename M, int B>
struct KeysAndQueries {
  static constexpr int kLast = B * 16 - 1;
  const M& mask;
  const TileTerms<M>& terms;
  int key, query;

  __device__ __forceinline__ int first_key(int column) const {
    return mask.first_key(query + column, mask.starts() == nullptr ? 0 : terms.start[column]);
  }
  __device__ __forceinline__ int last_key(int column) const {
    if constexpr (M::kIsSquare) {
      return mask.last_key(query + column);
    } else {
      return mask.last_key(query + column,
                           mask.ends() == nullptr ? mask.kv_len() : terms.end[column]);
    }
  }
  __device__ __forceinline__ int last_column() const {
    return min(kTileQueries, mask.seq() - query) - 1;
  }
  // True if the queries see none of the keys, or all of them.
  __device__ __forceinline__ bool none() const {
    return first_key(0) > key + kLast || last_key(last_column()) < key;
  }
  __device__ __forceinline__ bool all() const {
    return last_column() == kTileQueries - 1 && first_key(last_column()) <= key &&
           last_key(0) >= key + kLast;
  }
  // s, [keys, queries], to the softmax, dp to ds / scale. factor: of the scores, in powers of two.
  __device__ __forceinline__ void gradient(float factor, Products<B, kTileQueries>& s,
                                           Products<B, kTileQueries>& dp) const {
    if (all()) {
      gradient(factor, true, s, dp);
    } else {
      gradient(factor, false, s, dp);
    }
  }

 private:
  __device__ __forceinline__ void gradient(float factor, bool whole, Products<B, kTileQueries>& s,
                                           Products<B, kTileQueries>& dp) const {
#pragma unroll
    for (int n = 0; n < kTileQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = column_at(n, i);
        float lse = terms.lse[column];
        if constexpr (!M::kIsSquare) lse = shown_lse(lse);
#pragma unroll
        for (int b = 0; b < B; ++b) {
          const int its_key = key + b * 16 + row_at(i);
          const bool seen = whole || (column <= last_column() && its_key >= first_key(column) &&
                                      its_key <= last_key(column));
          const float exponent = __fmaf_rn(s[b][n][i], factor, -(lse * kLog2E));
          s[b][n][i] = seen ? fast_exp2(exponent) : 0.0f;
          dp[b][n][i] = seen ? s[b][n][i] * (dp[b][n][i] - terms.delta[column]) : 0.0f;
        }
      }
    }
  }
};

// The bias of keys from `key` on and queries from `query` on, as add_bias.
template <int B>
__device__ __forceinline__ void add_transposed_bias(const Bias& bias, float factor, int key,
                                                    int query, Products<B, kTileQueries>& s) {
#pragma unroll
  for (int b = 0; b < B; ++b) {
#pragma unroll
    for (int n = 0; n < kTileQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float own = bias.at(query + column_at(n, i), key + b * 16 + row_at(i));
        s[b][n][i] = __fmaf_rn(s[b][n][i], factor, own * kLog2E);
      }
    }
  }
}

template <Dtype T, int D, typename Form>
__global__ void __launch_bounds__(kThreads, 2)
    backward_kv(const __grid_constant__ AttentionParams p, const AttentionBackward x,
                int64_t n_tiles) {
  constexpr int kTile = kTileQueries * kRowLength<D>, kBlocks = kKeyBlocks<D>;
  extern __shared__ __align__(16) uint16_t shared[];
  using M = typename Form::Mask;
  __shared__ TileTerms<M> terms[2];
  uint16_t* const k = shared;
  uint16_t* const v = k + kOwnKeys<D> * kRowLength<D>;
  uint16_t* const tiles = v + kOwnKeys<D> * kRowLength<D>;  // q, dout; the next q, dout
  const Place place = place_of(p.kv_heads, n_tiles, kOwnKeys<D>, false);
  const int first = static_cast<int>(place.first);
  const Head kv_head = head_of(p, Form::keys(p), p.kv_heads, place.b, place.h);
  const M mask(p, x.ranges, place.b);
  const int begin = mask.first_query(first);
  const int end = mask.end_of_queries(
      begin, min(first + kOwnKeys<D>, static_cast<int>(Form::keys(p))) - 1, kTileQueries);
  const int n_shared = static_cast<int>(p.heads / p.kv_heads);
  const int n_of_head = (end - begin + kTileQueries - 1) / kTileQueries;
  const auto fetch = [&](int i, int stage) {
    const int64_t h = place.h * n_shared + i / n_of_head;
    const int tile = begin + i % n_of_head * kTileQueries;
    const Head head = head_of(p, p.heads, place.b, h);
    uint16_t* const q = tiles + 2 * stage * kTile;
    fetch_rows<D, kTileQueries, kThreads>(p, x.q, head, tile, q);
    fetch_rows<D, kTileQueries, kThreads>(p, x.dout, head, tile, q + kTile);
    terms[stage].fetch(x, mask, (place.b * p.heads + h) * p.q_len, tile);
  };
  fetch_rows<D, kOwnKeys<D>, kThreads>(p, x.k, kv_head, first, k);
  fetch_rows<D, kOwnKeys<D>, kThreads>(p, x.v, kv_head, first, v);
  const int n = n_shared * max(n_of_head, 0);
  if (M::kIsSquare || n > 0) fetch(0, 0);
  const int own = static_cast<int>(threadIdx.x / 32) * kBlocks * 16;
  Products<kBlocks, D> sum_k = {}, sum_v = {};
  for (int i = 0, stage = 0; i < n; ++i, stage ^= 1) {
    wait_for_tiles();
    if (i + 1 < n) fetch(i + 1, stage ^ 1);
    const KeysAndQueries<M, kBlocks> pairs{mask, terms[stage], first + own,
                                           begin + i % n_of_head * kTileQueries};
    if (pairs.none()) continue;
    const uint16_t* const q = tiles + 2 * stage * kTile;
    Products<kBlocks, kTileQueries> s, dp;
    multiply_rows<T, D, kBlocks, kTileQueries>(k + own * kRowLength<D>, q, s);
    multiply_rows<T, D, kBlocks, kTileQueries>(v + own * kRowLength<D>, q + kTile, dp);
    if constexpr (Form::kHasBias) {
      const Bias bias(p, x.bias, place.b, place.h * n_shared + i / n_of_head);
      add_transposed_bias<kBlocks>(bias, p.scale * kLog2E, pairs.key, pairs.query, s);
    }
    pairs.gradient(Form::kHasBias ? 1.0f : p.scale * kLog2E, s, dp);
    add_products<T, D, kBlocks, kTileQueries>(s, q + kTile, sum_v);
    add_products<T, D, kBlocks, kTileQueries>(dp, q, sum_k);
  }
  if constexpr (!M::kIsSquare) {
    if (n == 0) wait_for_tiles();  // its rows are about to be written over
  }
  store_rows<T, D, kBlocks>(p, {x.dk, kv_head, first + own}, sum_k, p.scale,
                            k + own * kRowLength<D>);
  store_rows<T, D, kBlocks>(p, {x.dv, kv_head, first + own}, sum_v, 1, v + own * kRowLength<D>);
}

template <int D>
constexpr size_t kQueryBytes = rows_bytes<D>(2 * kQueries + 4 * kKeys);
template <int D>
constexpr size_t kKeyBytes = rows_bytes<D>(2 * kOwnKeys<D> + 4 * kTileQueries);

template <Dtype T, int D, typename Form>
void launch(const AttentionParams& p, const AttentionBackward& x, cudaStream_t stream) {
  const int64_t q_tiles = ceil_div(p.q_len, kQueries), kv_tiles = ceil_div(p.kv_len, kOwnKeys<D>);
  const unsigned q_blocks = attention_blocks(p, p.heads, q_tiles);
  const unsigned kv_blocks = attention_blocks(p, p.kv_heads, kv_tiles);
  allow_shared_alone(backward_q<T, D, Form>, kQueryBytes<D>);
  allow_shared_alone(backward_kv<T, D, Form>, kKeyBytes<D>);
  row_deltas<T, D><<<static_cast<unsigned>(ceil_div(attention_rows(p) * (D / 8), kThreads)),
                     kThreads, 0, stream>>>(p, x);
  backward_q<T, D, Form><<<q_blocks, kThreads, kQueryBytes<D>, stream>>>(p, x, q_tiles);
  backward_kv<T, D, Form><<<kv_blocks, kThreads, kKeyBytes<D>, stream>>>(p, x, kv_tiles);
}

// Dynamic shared memory that a block may have.
size_t most_shared() {
  static const size_t bytes = [] {
    int device = 0, most = 0;
    check(cudaGetDevice(&device), "the device");
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
          "the device's shared memory");
    return static_cast<size_t>(most);
  }();
  return bytes;
}

}  // namespace

bool tensor_gradient_fits(const AttentionParams& p) {
  size_t wanted = 0;
  visit_tensor_kernel(p,
                      [&]<Dtype T, int D>() { wanted = std::max(kQueryBytes<D>, kKeyBytes<D>); });
  return wanted + 1024 <= most_shared();  // and what it has beside
}

void tensor_attention_grad(const AttentionParams& p, const AttentionBackward& x,
                           cudaStream_t stream) {
  visit_tensor_kernel(p, [&]<Dtype T, int D>() {
    visit_form(p, [&]<typename Form>() { launch<T, D, Form>(p, x, stream); });
  });
  if (p.bias.has_gradient) tensor_bias_gradient(p, x, stream);
  check_launch("attention_grad");
}

}  // namespace octet::cuda
