// Attention with f32 products, for every type and head size: tiles of 32 queries by 32 keys in
// shared memory. A warp owns eight rows of its block's tile; a lane is one row of the other side
// while products run along the head, and a column of the head in sums over the other side. Nothing
// is added across blocks: every result has one writer and one order.
#include "backends/cuda/kernels/attention/attention_bias.cuh"

namespace octet::cuda {
namespace {

constexpr int kTile = kPlainTile;
constexpr int kWarps = 4;
constexpr int kRows = kTile / kWarps;  // of a warp
constexpr int kThreads = kWarps * 32;
constexpr uint32_t kWholeWarp = 0xFFFFFFFFu;

__device__ __forceinline__ float read(Dtype dtype, const void* x, int64_t i) {
  if (dtype == Dtype::f32) return static_cast<const float*>(x)[i];
  const uint16_t bits = static_cast<const uint16_t*>(x)[i];
  return dtype == Dtype::bf16 ? to_float<Dtype::bf16>(bits) : to_float<Dtype::fp16>(bits);
}
__device__ __forceinline__ void write(Dtype dtype, void* x, int64_t i, float value) {
  if (dtype == Dtype::f32) {
    static_cast<float*>(x)[i] = value;
  } else {
    static_cast<uint16_t*>(x)[i] =
        dtype == Dtype::bf16 ? from_float<Dtype::bf16>(value) : from_float<Dtype::fp16>(value);
  }
}

// Rows of a tile are head_dim + 1 apart: lanes that read one column each hit their own bank.
struct Tile {
  float* at;
  int stride;
  __device__ __forceinline__ float* row(int r) const { return at + r * stride; }
};
__device__ __forceinline__ Tile tile_at(float* shared, int index, int head_dim) {
  return {shared + index * kTile * (head_dim + 1), head_dim + 1};
}

// Rows [first, first + kTile) of a head; zeros beyond the sequence.
__device__ __forceinline__ void load_tile(const AttentionParams& p, const void* x, const Head& head,
                                          int64_t first, const Tile& tile) {
  const int d = static_cast<int>(p.head_dim);
  for (int r = static_cast<int>(threadIdx.x) / 32; r < kTile; r += kWarps) {
    const int64_t t = first + r;
    for (int c = static_cast<int>(threadIdx.x) % 32; c < d; c += 32) {
      tile.row(r)[c] = t < head.rows ? read(p.dtype, x, head.first + t * head.stride + c) : 0.0f;
    }
  }
}

// s[r] = own row (first_row + r) times the other tile's row `lane`.
__device__ __forceinline__ void multiply_rows(const Tile& own, int first_row, const Tile& other,
                                              int head_dim, float (&s)[kRows]) {
  const float* mine = other.row(static_cast<int>(threadIdx.x % 32));
#pragma unroll
  for (int r = 0; r < kRows; ++r) s[r] = 0;
#pragma unroll 4
  for (int c = 0; c < head_dim; ++c) {
    const float x = mine[c];
#pragma unroll
    for (int r = 0; r < kRows; ++r) s[r] = __fmaf_rn(own.row(first_row + r)[c], x, s[r]);
  }
}

// sum[r][i] += sum over j of p[r] of lane j times column lane + 32 i of the other tile's row j.
template <int kColumns>
__device__ __forceinline__ void add_products(const float (&p)[kRows], const Tile& other,
                                             int head_dim, float (&sum)[kRows][kColumns]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 4
  for (int j = 0; j < kTile; ++j) {
    float factor[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) factor[r] = __shfl_sync(kWholeWarp, p[r], j);
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int c = lane + 32 * i;
      const float x = c < head_dim ? other.row(j)[c] : 0.0f;
#pragma unroll
      for (int r = 0; r < kRows; ++r) sum[r][i] = __fmaf_rn(factor[r], x, sum[r][i]);
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void store_rows(const AttentionParams& p, void* to, const Head& head,
                                           int64_t first, const float (&sum)[kRows][kColumns]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first + r >= head.rows) continue;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int c = lane + 32 * i;
      if (c < p.head_dim) {
        write(p.dtype, to, head.first + (first + r) * head.stride + c, sum[r][i]);
      }
    }
  }
}

__device__ __forceinline__ float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, step));
  return x;
}
__device__ __forceinline__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kWholeWarp, x, step);
  return x;
}

// Keys that the queries of a warp see, and those that its block goes through.
struct RowsSeen {
  int first_key[kRows], last_key[kRows];
  int begin, end;

  __device__ __forceinline__ RowsSeen(const AttentionParams& p, const RangeMask& mask,
                                      int64_t of_block, int own) {
    const int first = static_cast<int>(of_block);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int query = first + own + r;
      first_key[r] = mask.first_key(query);
      last_key[r] = query < p.q_len ? mask.last_key(query) : -1;
    }
    begin = mask.first_key(first) / kTile * kTile;
    end = mask.last_key(min(first + kTile, static_cast<int>(p.q_len)) - 1) + 1;
  }
  __device__ __forceinline__ bool sees(int row, int64_t key) const {
    return key >= first_key[row] && key <= last_key[row];
  }
};

template <int kColumns>
__global__ void __launch_bounds__(kThreads)
    forward(const __grid_constant__ AttentionParams p, const AttentionForward x, int64_t n_tiles) {
  extern __shared__ float shared[];
  const int d = static_cast<int>(p.head_dim);
  const Tile q = tile_at(shared, 0, d), k = tile_at(shared, 1, d), v = tile_at(shared, 2, d);
  const Place place = place_of(p.heads, n_tiles, kTile, true);
  const Head head = head_of(p, p.heads, place.b, place.h);
  const Head kv_head = head_of(p, p.kv_len, p.kv_heads, place.b, place.h / (p.heads / p.kv_heads));
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int own = static_cast<int>(threadIdx.x / 32) * kRows;
  const RowsSeen rows(p, RangeMask(p, x.ranges, place.b), place.first, own);
  const bool has_bias = p.bias.is_there;
  const Bias bias(p, x.bias, place.b, place.h);
  load_tile(p, x.q, head, place.first, q);
  float sum[kRows][kColumns] = {}, top[kRows], total[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) top[r] = -INFINITY, total[r] = 0;
  for (int64_t first = rows.begin; first < rows.end; first += kTile) {
    __syncthreads();
    load_tile(p, x.k, kv_head, first, k);
    load_tile(p, x.v, kv_head, first, v);
    __syncthreads();
    float s[kRows];
    multiply_rows(q, own, k, d, s);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int query = static_cast<int>(place.first) + own + r,
                key = static_cast<int>(first) + lane;
      const float score = s[r] * p.scale + (has_bias ? bias.at(query, key) : 0.0f);
      s[r] = rows.sees(r, key) ? score : -INFINITY;
      const bool seen = s[r] != -INFINITY;  // by the bias too
      const float next = fmaxf(top[r], warp_max(s[r]));
      const float shrink = next == -INFINITY ? 1.0f : expf(top[r] - next);
      s[r] = seen ? expf(s[r] - next) : 0.0f;
      top[r] = next;
      total[r] = total[r] * shrink + warp_sum(s[r]);
#pragma unroll
      for (int i = 0; i < kColumns; ++i) sum[r][i] *= shrink;
    }
    add_products(s, v, d, sum);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float inverse = total[r] == 0 ? 0.0f : 1.0f / total[r];  // sees no key
#pragma unroll
    for (int i = 0; i < kColumns; ++i) sum[r][i] *= inverse;
    const int64_t query = place.first + own + r;
    if (lane == 0 && query < p.q_len) {
      x.lse[(place.b * p.heads + place.h) * p.q_len + query] = top[r] + logf(total[r]);
    }
  }
  store_rows(p, x.o, head, place.first + own, sum);
}

// delta of every row: one warp each, in the order of lse.
__global__ void __launch_bounds__(kThreads)
    row_deltas(const __grid_constant__ AttentionParams p, const AttentionBackward x) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (i >= p.batch * p.heads * p.q_len) return;
  const int64_t t = i % p.q_len, h = i / p.q_len % p.heads, b = i / (p.q_len * p.heads);
  const Head head = head_of(p, p.heads, b, h);
  const int64_t first = head.first + t * head.stride;
  float sum = 0;
  for (int64_t c = threadIdx.x % 32; c < p.head_dim; c += 32) {
    sum = __fmaf_rn(read(p.dtype, x.dout, first + c), read(p.dtype, x.o, first + c), sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) x.delta[i] = sum;
}

struct RowTerms {
  float lse, delta;
};
__device__ __forceinline__ RowTerms row_terms(const AttentionParams& p, const AttentionBackward& x,
                                              int64_t first_of_head, int64_t query) {
  if (query >= p.q_len) return {0, 0};
  return {shown_lse(x.lse[first_of_head + query]), x.delta[first_of_head + query]};
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads) backward_q(const __grid_constant__ AttentionParams p,
                                                       const AttentionBackward x, int64_t n_tiles) {
  extern __shared__ float shared[];
  const int d = static_cast<int>(p.head_dim);
  const Tile q = tile_at(shared, 0, d), dout = tile_at(shared, 1, d);
  const Tile k = tile_at(shared, 2, d), v = tile_at(shared, 3, d);
  const Place place = place_of(p.heads, n_tiles, kTile, true);
  const Head head = head_of(p, p.heads, place.b, place.h);
  const Head kv_head = head_of(p, p.kv_len, p.kv_heads, place.b, place.h / (p.heads / p.kv_heads));
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int own = static_cast<int>(threadIdx.x / 32) * kRows;
  const int64_t of_head = (place.b * p.heads + place.h) * p.q_len;
  load_tile(p, x.q, head, place.first, q);
  load_tile(p, x.dout, head, place.first, dout);
  const bool has_bias = p.bias.is_there;
  const Bias bias(p, x.bias, place.b, place.h);
  const RowsSeen rows(p, RangeMask(p, x.ranges, place.b), place.first, own);
  float sum[kRows][kColumns] = {};
  for (int64_t first = rows.begin; first < rows.end; first += kTile) {
    __syncthreads();
    load_tile(p, x.k, kv_head, first, k);
    load_tile(p, x.v, kv_head, first, v);
    __syncthreads();
    float s[kRows], dp[kRows];
    multiply_rows(q, own, k, d, s);
    multiply_rows(dout, own, v, d, dp);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const RowTerms terms = row_terms(p, x, of_head, place.first + own + r);
      const int query = static_cast<int>(place.first) + own + r,
                key = static_cast<int>(first) + lane;
      const float score = s[r] * p.scale + (has_bias ? bias.at(query, key) : 0.0f);
      const float probability = expf(score - terms.lse);
      s[r] = rows.sees(r, key) ? p.scale * (probability * (dp[r] - terms.delta)) : 0.0f;
    }
    add_products(s, k, d, sum);
  }
  store_rows(p, x.dq, head, place.first + own, sum);
}

// A block owns a tile of keys of one kv head and goes through the queries of all heads that read
// it.
template <int kColumns>
__global__ void __launch_bounds__(kThreads)
    backward_kv(const __grid_constant__ AttentionParams p, const AttentionBackward x,
                int64_t n_tiles) {
  extern __shared__ float shared[];
  const int d = static_cast<int>(p.head_dim);
  const Tile q = tile_at(shared, 0, d), dout = tile_at(shared, 1, d);
  const Tile k = tile_at(shared, 2, d), v = tile_at(shared, 3, d);
  const Place place = place_of(p.kv_heads, n_tiles, kTile, false);
  const Head kv_head = head_of(p, p.kv_len, p.kv_heads, place.b, place.h);
  const int64_t n_shared = p.heads / p.kv_heads;
  const RangeMask mask(p, x.ranges, place.b);
  const int begin = mask.first_query(static_cast<int>(place.first));
  const int last = static_cast<int>(min(place.first + kTile, p.kv_len)) - 1;
  const int end = mask.end_of_queries(begin, last, kTile);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int own = static_cast<int>(threadIdx.x / 32) * kRows;
  load_tile(p, x.k, kv_head, place.first, k);
  load_tile(p, x.v, kv_head, place.first, v);
  float sum_k[kRows][kColumns] = {}, sum_v[kRows][kColumns] = {};
  for (int64_t h = place.h * n_shared; h < (place.h + 1) * n_shared; ++h) {
    const Head head = head_of(p, p.heads, place.b, h);
    const Bias bias(p, x.bias, place.b, h);
    const int64_t of_head = (place.b * p.heads + h) * p.q_len;
    for (int first = begin; first < end; first += kTile) {
      __syncthreads();
      load_tile(p, x.q, head, first, q);
      load_tile(p, x.dout, head, first, dout);
      __syncthreads();
      const int query = first + lane;
      const RowTerms terms = row_terms(p, x, of_head, query);
      const int first_key = query < p.q_len ? mask.first_key(query) : static_cast<int>(p.kv_len);
      const int last_key = mask.last_key(query);
      float s[kRows], dp[kRows];
      multiply_rows(k, own, q, d, s);
      multiply_rows(v, own, dout, d, dp);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int key = static_cast<int>(place.first) + own + r;
        const bool seen = key < p.kv_len && key >= first_key && key <= last_key;
        const float score = s[r] * p.scale + (p.bias.is_there ? bias.at(query, key) : 0.0f);
        s[r] = seen ? expf(score - terms.lse) : 0.0f;
        dp[r] = seen ? p.scale * (s[r] * (dp[r] - terms.delta)) : 0.0f;
      }
      add_products(s, dout, d, sum_v);
      add_products(dp, q, d, sum_k);
    }
  }
  store_rows(p, x.dk, kv_head, place.first + own, sum_k);
  store_rows(p, x.dv, kv_head, place.first + own, sum_v);
}

// The bias's gradient: a block owns a tile of its rows and keys, and goes through the entries and
// heads that share it, in order; where all queries share a row, through their tiles too.
__global__ void __launch_bounds__(kThreads)
    backward_bias(const __grid_constant__ AttentionParams p, const AttentionBackward x,
                  BiasGrid grid) {
  extern __shared__ float shared[];
  const int d = static_cast<int>(p.head_dim);
  const Tile q = tile_at(shared, 0, d), dout = tile_at(shared, 1, d);
  const Tile k = tile_at(shared, 2, d), v = tile_at(shared, 3, d);
  const BiasPlace place = grid.place(kTile, kTile);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int own = static_cast<int>(threadIdx.x / 32) * kRows;
  const int key = place.key + lane;
  const BiasShare share(p, place, kTile);
  float sum[kRows] = {};
  for (int i = 0; i < share.n; ++i) {
    const auto [b, h, first] = share.at(i);
    const RowsSeen rows(p, RangeMask(p, x.ranges, b), first, own);
    if (rows.begin >= place.key + kTile || rows.end <= place.key) continue;
    const Head head = head_of(p, p.heads, b, h);
    const Head kv_head = head_of(p, p.kv_len, p.kv_heads, b, h / (p.heads / p.kv_heads));
    const Bias bias(p, x.bias, b, h);
    __syncthreads();
    load_tile(p, x.q, head, first, q);
    load_tile(p, x.dout, head, first, dout);
    load_tile(p, x.k, kv_head, place.key, k);
    load_tile(p, x.v, kv_head, place.key, v);
    __syncthreads();
    float s[kRows], dp[kRows];
    multiply_rows(q, own, k, d, s);
    multiply_rows(dout, own, v, d, dp);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int query = first + own + r;
      const RowTerms terms = row_terms(p, x, (b * p.heads + h) * p.q_len, query);
      const float probability = expf(s[r] * p.scale + bias.at(query, key) - terms.lse);
      if (rows.sees(r, key)) sum[r] += probability * (dp[r] - terms.delta);
    }
  }
  const BiasOut out{p, x.dbias, place};
  if (p.bias.query != 0) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int query = place.query + own + r;
      if (query < p.q_len && key < p.kv_len) out.write(query, key, sum[r]);
    }
    return;
  }
  float total = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) total += sum[r];
  __syncthreads();
  shared[threadIdx.x] = total;  // tiles of heads of 1 have room for 256
  __syncthreads();
  if (threadIdx.x >= 32 || key >= p.kv_len) return;
  float all = 0;
  for (int w = 0; w < kWarps; ++w) all += shared[w * 32 + lane];
  out.write(0, key, all);
}

// Calls f.template operator()<kColumns>() for the columns that a lane holds.
template <typename F>
void visit_columns(int64_t head_dim, F&& f) {
  if (head_dim <= 32) return f.template operator()<1>();
  if (head_dim <= 64) return f.template operator()<2>();
  if (head_dim <= 128) return f.template operator()<4>();
  return f.template operator()<8>();
}

struct Grid {
  int64_t n_tiles;
  unsigned blocks;
  size_t shared_bytes;
};
Grid grid_of(const AttentionParams& p, int64_t heads, int64_t rows, bool gradient) {
  const int64_t n_tiles = ceil_div(rows, kTile);
  return {n_tiles, static_cast<unsigned>(p.batch * heads * n_tiles),
          static_cast<size_t>(plain_shared_bytes(p, gradient))};
}
}  // namespace

void plain_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream) {
  const Grid grid = grid_of(p, p.heads, p.q_len, false);
  visit_columns(p.head_dim, [&]<int kColumns>() {
    allow_shared_alone(forward<kColumns>, grid.shared_bytes);
    forward<kColumns><<<grid.blocks, kThreads, grid.shared_bytes, stream>>>(p, x, grid.n_tiles);
  });
  check_launch("attention");
}

void plain_attention_grad(const AttentionParams& p, const AttentionBackward& x,
                          cudaStream_t stream) {
  const auto delta_blocks = static_cast<unsigned>(ceil_div(attention_rows(p), kWarps));
  row_deltas<<<delta_blocks, kThreads, 0, stream>>>(p, x);
  const Grid of_q = grid_of(p, p.heads, p.q_len, true);
  const Grid of_kv = grid_of(p, p.kv_heads, p.kv_len, true);
  visit_columns(p.head_dim, [&]<int kColumns>() {
    allow_shared_alone(backward_q<kColumns>, of_q.shared_bytes);
    allow_shared_alone(backward_kv<kColumns>, of_kv.shared_bytes);
    backward_q<kColumns><<<of_q.blocks, kThreads, of_q.shared_bytes, stream>>>(p, x, of_q.n_tiles);
    backward_kv<kColumns>
        <<<of_kv.blocks, kThreads, of_kv.shared_bytes, stream>>>(p, x, of_kv.n_tiles);
  });
  if (p.bias.has_gradient) {
    const BiasGrid grid(p, kTile, kTile);
    allow_shared_alone(backward_bias, of_q.shared_bytes);
    backward_bias<<<grid.blocks(), kThreads, of_q.shared_bytes, stream>>>(p, x, grid);
  }
  check_launch("attention_grad");
}

}  // namespace octet::cuda
