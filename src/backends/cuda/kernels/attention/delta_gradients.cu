// Gradients of the gated delta rule's queries, keys and numbers, of each chunk by itself: behind
// delta_back, all that chunks have from each other is known.
#include "backends/cuda/kernels/attention/delta_visit.cuh"

namespace octet::cuda {
namespace {

// A block's tiles. Sums of rows are kept apart by the warps that make them, and added in order.
template <int kKeys>
struct GradientTiles {
  static constexpr int kStride = kKeyStride<kKeys>, kCols = delta_columns(kKeys);
  static constexpr int kValues = delta_stride(kCols);
  static constexpr int kColWarps = DeltaProduct<kDeltaRows, kKeys>::kColWarps;
  static_assert(kColWarps == 4 && DeltaProduct<kDeltaRows, kDeltaRows>::kRowWarps == 2);
  float *q, *k, *dout, *e, *news, *state, *dscores, *dblocked;
  float* line;    // [4][64]: of the sums of log_decay
  float* dbeta;   // [4][64]
  float* of_all;  // [4][64]: what the last token's decay keeps
  float* by_warp;
  DeltaNumbers* n;

  __device__ __forceinline__ explicit GradientTiles(float* shared) {
    q = shared;
    k = q + kDeltaRows * kStride;
    dout = k + kDeltaRows * kStride;
    e = dout + kDeltaRows * kValues;
    news = e + kDeltaRows * kValues;
    state = news + kDeltaRows * kValues;
    dscores = state + kKeys * kValues;
    dblocked = dscores + kDeltaRows * kPairStride;
    line = dblocked + kDeltaRows * kPairStride;
    dbeta = line + kColWarps * kDeltaRows;
    of_all = dbeta + kColWarps * kDeltaRows;
    by_warp = of_all + kColWarps * kDeltaRows;
    n = reinterpret_cast<DeltaNumbers*>(by_warp + kColWarps * kDeltaRows);
  }
};

template <int kKeys>
using KeyProduct = DeltaProduct<kDeltaRows, kKeys>;
using PairProduct = DeltaProduct<kDeltaRows, kDeltaRows>;

template <int kKeys>
__device__ __forceinline__ void load_chunk(const DeltaTask& t, const DeltaPlace& at,
                                           const GradientTiles<kKeys>& s) {
  using S = GradientTiles<kKeys>;
  load_rows<kDeltaRows, kKeys, S::kStride>(t.q, key_rows(t, at, t.p.q), s.q);
  load_rows<kDeltaRows, kKeys, S::kStride>(t.k, key_rows(t, at, t.p.k), s.k);
  load_numbers(t.numbers[at.at], *s.n);
  for (int i = static_cast<int>(threadIdx.x); i < 4 * S::kColWarps * kDeltaRows; i += kDeltaThreads)
    s.line[i] = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kDeltaRows * kKeys; i += kDeltaThreads) {
    const int r = i / kKeys, place = r * S::kStride + i % kKeys;
    s.q[place] *= s.n->inv_q[r];
    s.k[place] *= s.n->inv_k[r];
  }
}

template <int kKeys>
__device__ __forceinline__ void load_state(const DeltaTask& t, const DeltaPlace& at, int64_t column,
                                           const float* states, float* tile) {
  using S = GradientTiles<kKeys>;
  load_rows<kKeys, S::kCols, S::kValues>(states, state_rows(t, Dtype::f32, at.at, column), tile);
}

// Adds to dbeta the sums over the rows of P dP - L dL', where dP' and dL' are of N.
__device__ __forceinline__ void add_column_sums(PairProduct& x, float* sums) {
#pragma unroll
  for (int n = 0; n < PairProduct::kN; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = 0;
#pragma unroll
      for (int m = 0; m < PairProduct::kM; ++m) sum += x.x[m][n][i] + x.x[m][n][i + 2];
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
      if (threadIdx.x % 32 < 4)
        sums[PairProduct::warp_row() * kDeltaRows + PairProduct::column(n) + i] += sum;
    }
  }
}

// dq's part of the states, in `dq`; the gradients of the pairs of tokens, in their tiles.
template <int kKeys>
__device__ __forceinline__ void gradients_of_pairs(const DeltaTask& t, const DeltaPlace& at,
                                                   const GradientTiles<kKeys>& s,
                                                   KeyProduct<kKeys>& dq) {
  using S = GradientTiles<kKeys>;
  using Rows = Along<S::kValues>;
  PairProduct of_q, of_k;
  for (int64_t column = 0; column < t.p.value_dim; column += S::kCols) {
    __syncthreads();
    load_rows<kDeltaRows, S::kCols, S::kValues>(t.dout, value_rows(t, at, t.p.dout, column),
                                                s.dout);
    load_rows<kDeltaRows, S::kCols, S::kValues>(t.dnews, kept_rows(t, at, column), s.e);
    load_rows<kDeltaRows, S::kCols, S::kValues>(t.news, kept_rows(t, at, column), s.news);
    load_state<kKeys>(t, at, column, t.states, s.state);
    __syncthreads();
    dq.add(Rows{s.dout}, Rows{s.state}, 0, S::kCols);
    of_q.add(Rows{s.dout}, Rows{s.news}, 0, S::kCols);
    of_k.add(Rows{s.e}, Rows{s.news}, 0, S::kCols);
  }
  const DeltaNumbers& n = *s.n;
  const int64_t first = at.at * kPairElems;
  const auto put = [&](const PairProduct& product, float sign, float* tile) {
    PairProduct copy = product;
    copy.each([&](int r, int c, float& x, float& y) {
      x *= sign * delta_decay(n, r, c) * n.beta[c];
      y *= sign * delta_decay(n, r, c + 1) * n.beta[c + 1];
      if (sign < 0 && c >= r) x = 0;
      if (sign < 0 && c + 1 >= r) y = 0;
    });
    copy.put(tile, kPairStride);
  };
  put(of_q, 1.0f, s.dscores);
  put(of_k, -1.0f, s.dblocked);
  const auto times = [&](PairProduct& product, const float* by) {
    product.each([&](int r, int c, float& x, float& y) {
      const float2 two = *reinterpret_cast<const float2*>(by + first + r * kDeltaRows + c);
      x *= two.x, y *= two.y;
    });
  };
  times(of_q, t.scores);
  times(of_k, t.blocked);
#pragma unroll
  for (int m = 0; m < PairProduct::kM; ++m) {
#pragma unroll
    for (int i = 0; i < PairProduct::kN * 4; ++i)
      of_q.x[m][i / 4][i % 4] -= of_k.x[m][i / 4][i % 4];
  }
  add_column_sums(of_q, s.dbeta);
  __syncthreads();
}

// The gradient of what is read of the state by keys, in `dk`.
template <int kKeys>
__device__ __forceinline__ void gradient_of_reads(const DeltaTask& t, const DeltaPlace& at,
                                                  const GradientTiles<kKeys>& s,
                                                  KeyProduct<kKeys>& dk) {
  using S = GradientTiles<kKeys>;
  for (int64_t column = 0; column < t.p.value_dim; column += S::kCols) {
    __syncthreads();
    load_rows<kDeltaRows, S::kCols, S::kValues>(t.dnews, kept_rows(t, at, column), s.e);
    load_state<kKeys>(t, at, column, t.states, s.state);
    __syncthreads();
    dk.add(Along<S::kValues>{s.e}, Along<S::kValues>{s.state}, 0, S::kCols);
  }
  dk.each([&](int r, int, float& x, float& y) { x *= -s.n->since[r], y *= -s.n->since[r]; });
  dk.add(Along<kPairStride>{s.dblocked}, Across<S::kStride>{s.k}, 0, dk.end_row());
  dk.template add_row_sums<S::kStride>(s.k, s.line, 1.0f);
}

// The gradient of keys as what is written into the state and read by later tokens, in `dk`. Returns
// the thread's share of the sum of the two states' products.
template <int kKeys>
__device__ __forceinline__ float gradient_of_writes(const DeltaTask& t, const DeltaPlace& at,
                                                    const GradientTiles<kKeys>& s,
                                                    KeyProduct<kKeys>& dk) {
  using S = GradientTiles<kKeys>;
  float along = 0;
  for (int64_t column = 0; column < t.p.value_dim; column += S::kCols) {
    __syncthreads();
    load_rows<kDeltaRows, S::kCols, S::kValues>(t.news, kept_rows(t, at, column), s.news);
    load_state<kKeys>(t, at, column, t.dstates, s.state);
    __syncthreads();
    dk.add(Along<S::kValues>{s.news}, Along<S::kValues>{s.state}, 0, S::kCols);
    const DeltaRowsOf of = state_rows(t, Dtype::f32, at.at, column);
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * S::kCols; i += kDeltaThreads) {
      const int r = i / S::kCols, c = i % S::kCols;
      if (r < of.rows && c < of.columns)
        along =
            __fmaf_rn(t.states[of.first + r * of.stride + c], s.state[r * S::kValues + c], along);
    }
  }
  const DeltaNumbers& n = *s.n;
  dk.each([&](int r, int, float& x, float& y) { x *= n.behind[r], y *= n.behind[r]; });
  dk.template add_row_sums<S::kStride>(s.k, s.dbeta, 1.0f);
  dk.each([&](int r, int, float& x, float& y) { x *= n.beta[r], y *= n.beta[r]; });
  dk.template add_row_sums<S::kStride>(s.k, s.of_all, 1.0f);
  dk.add(Across<kPairStride>{s.dscores}, Across<S::kStride>{s.q}, dk.first_row(), kDeltaRows);
  dk.add(Across<kPairStride>{s.dblocked}, Across<S::kStride>{s.k}, dk.first_row(), kDeltaRows);
  dk.template add_row_sums<S::kStride>(s.k, s.line, -1.0f);
  return along;
}

// dbeta and dlog_decay, of the sums of the rows.
template <int kKeys>
__device__ __forceinline__ void put_numbers(const DeltaTask& t, const DeltaPlace& at,
                                            const GradientTiles<kKeys>& s, float along) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) along += __shfl_xor_sync(~0u, along, step);
  if (threadIdx.x % 32 == 0) s.by_warp[threadIdx.x / 32] = along;
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  const auto sum_of = [r](const float* x) {
    float sum = 0;
    for (int w = 0; w < GradientTiles<kKeys>::kColWarps; ++w) sum += x[w * kDeltaRows + r];
    return sum;
  };
  float of_row = 0, of_beta = 0, of_all = 0;
  if (r < kDeltaRows) of_row = sum_of(s.line), of_beta = sum_of(s.dbeta), of_all = sum_of(s.of_all);
  __syncthreads();
  if (r < kDeltaRows) s.line[r] = of_row, s.of_all[r] = of_all;
  __syncthreads();
  if (r >= at.rows) return;
  // Behind the last token: what all keys have written, and the state that has passed.
  float later = 0;
  for (int w = 0; w < kDeltaWarps; ++w) later += s.by_warp[w];
  later *= s.n->passed;
  for (int i = 0; i < kDeltaRows; ++i) later += s.of_all[i];
  for (int i = kDeltaRows - 1; i >= r; --i) later += s.line[i];
  const int64_t number = (at.text * t.p.seq + at.first + r) * t.p.heads + at.head;
  store_float(t.dlog_decay, number, t.p.dlog_decay, later);
  store_float(t.dbeta, number, t.p.dbeta, of_beta);
}

template <int kKeys>
__global__ void __launch_bounds__(kDeltaThreads, 1)
    delta_gradients(const __grid_constant__ DeltaTask t) {
  using S = GradientTiles<kKeys>;
  extern __shared__ __align__(16) float shared[];
  const S s(shared);
  const DeltaPlace at = delta_place(t, blockIdx.x / t.n_chunks, blockIdx.x % t.n_chunks);
  const DeltaRowsOf unit{Dtype::f32, at.at * kDeltaRows * t.p.key_dim, t.p.key_dim, kDeltaRows,
                         static_cast<int>(t.p.key_dim)};
  load_chunk<kKeys>(t, at, s);
  {
    KeyProduct<kKeys> dq;
    gradients_of_pairs<kKeys>(t, at, s, dq);
    dq.each([&](int r, int, float& x, float& y) { x *= s.n->since[r], y *= s.n->since[r]; });
    dq.add(Along<kPairStride>{s.dscores}, Across<S::kStride>{s.k}, 0, dq.end_row());
    dq.template add_row_sums<S::kStride>(s.q, s.line, 1.0f);
    store_product(t.unit_dq, unit, dq);
  }
  KeyProduct<kKeys> dk, written;
  gradient_of_reads<kKeys>(t, at, s, dk);
  const float along = gradient_of_writes<kKeys>(t, at, s, written);
#pragma unroll
  for (int m = 0; m < KeyProduct<kKeys>::kM; ++m) {
#pragma unroll
    for (int i = 0; i < KeyProduct<kKeys>::kN * 4; ++i)
      dk.x[m][i / 4][i % 4] += written.x[m][i / 4][i % 4];
  }
  store_product(t.unit_dk, unit, dk);
  put_numbers<kKeys>(t, at, s, along);
}

// Gradients of a row x of a key head from those of the unit row y = length x / |x| in the heads
// that share it, in order: without what goes along x.
constexpr int kOfLane = static_cast<int>(kMaxDeltaDim / 32);
struct UnitRows {
  const void* x;
  const float* unit;
  void* dx;
  Dtype x_dtype, dx_dtype;
  float length;
};
__device__ __forceinline__ void put_row(const DeltaTask& t, const UnitRows& rows, int64_t row) {
  const GatedDeltaParams& p = t.p;
  const int64_t token = row / p.key_heads, key_head = row % p.key_heads;
  const int64_t text = token / p.seq, place = token % p.seq, group = p.heads / p.key_heads;
  const int lane = static_cast<int>(threadIdx.x % 32);
  float x[kOfLane], dy[kOfLane], squares = 0, along = 0;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int64_t c = lane + 32 * i;
    x[i] = dy[i] = 0;
    if (c >= p.key_dim) continue;
    x[i] = load_float(rows.x, row * p.key_dim + c, rows.x_dtype);
    for (int64_t h = 0; h < group; ++h) {
      const int64_t pair = text * p.heads + key_head * group + h;
      dy[i] += rows.unit[(pair * t.n_chunks * kDeltaRows + place) * p.key_dim + c];
    }
    squares = __fmaf_rn(x[i], x[i], squares);
    along = __fmaf_rn(x[i], dy[i], along);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    squares += __shfl_xor_sync(~0u, squares, step);
    along += __shfl_xor_sync(~0u, along, step);
  }
  const float inverse = 1.0f / sqrtf(squares + kDeltaLengthEps);
  along *= inverse * inverse;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const int64_t c = lane + 32 * i;
    if (c < p.key_dim)
      store_float(rows.dx, row * p.key_dim + c, rows.dx_dtype,
                  __fmaf_rn(-x[i], along, dy[i]) * (inverse * rows.length));
  }
}

__global__ void __launch_bounds__(kDeltaThreads) delta_rows(const __grid_constant__ DeltaTask t) {
  const GatedDeltaParams& p = t.p;
  const int64_t row = int64_t{blockIdx.x} * kDeltaWarps + threadIdx.x / 32;
  if (row >= p.batch * p.seq * p.key_heads) return;
  const float length = 1.0f / sqrtf(static_cast<float>(p.key_dim));
  put_row(t, {t.q, t.unit_dq, t.dq, p.q, p.dq, length}, row);
  put_row(t, {t.k, t.unit_dk, t.dk, p.k, p.dk, 1.0f}, row);
}

}  // namespace

void launch_delta_gradients(const DeltaTask& t, cudaStream_t stream) {
  visit_delta_keys(t.p, [&]<int kKeys>() {
    const auto bytes = static_cast<size_t>(delta_shared(kKeys).gradients);
    allow_shared(delta_gradients<kKeys>, bytes);
    const unsigned grid = grid_of(delta_pairs(t.p) * t.n_chunks);
    delta_gradients<kKeys><<<grid, kDeltaThreads, bytes, stream>>>(t);
    check_launch("delta_gradients");
  });
}

void launch_delta_rows(const DeltaTask& t, cudaStream_t stream) {
  const unsigned grid = grid_of(ceil_div(t.p.batch * t.p.seq * t.p.key_heads, kDeltaWarps));
  delta_rows<<<grid, kDeltaThreads, 0, stream>>>(t);
  check_launch("delta_rows");
}

}  // namespace octet::cuda
