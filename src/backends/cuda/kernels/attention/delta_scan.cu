// The gated delta rule from chunk to chunk: forward with the state, backward with its gradient. A
// block has some columns of the values of one head.
#include "backends/cuda/kernels/attention/delta_visit.cuh"

namespace octet::cuda {
namespace {

template <int kKeys>
constexpr int kColumns = delta_columns(kKeys);
template <int kKeys>
constexpr int kValueStride = delta_stride(kColumns<kKeys>);

// Some value columns of a head.
struct Columns {
  int64_t pair, first;
};
__device__ __forceinline__ Columns columns_of(const DeltaTask& t, int columns) {
  const int64_t n = (t.p.value_dim + columns - 1) / columns;
  return {blockIdx.x / n, blockIdx.x % n * columns};
}

// A block's tiles.
template <int kKeys>
struct ScanTiles {
  static constexpr int kStride = kKeyStride<kKeys>, kValues = kValueStride<kKeys>;
  float *state, *k, *q, *values, *solved, *scores, *y;
  DeltaNumbers* n;

  __device__ __forceinline__ explicit ScanTiles(float* shared) {
    n = reinterpret_cast<DeltaNumbers*>(shared);
    state = shared + sizeof(DeltaNumbers) / sizeof(float);
    k = state + kKeys * kValues;
    q = k + kDeltaRows * kStride;
    values = q + kDeltaRows * kStride;
    solved = values + kDeltaRows * kValues;
    scores = solved + kDeltaRows * kPairStride;
    y = scores + kDeltaRows * kPairStride;  // backward
  }
  __device__ __forceinline__ void load_keys(const DeltaTask& t, const DeltaPlace& at) const {
    load_rows<kDeltaRows, kKeys, kStride>(t.k, key_rows(t, at, t.p.k), k);
    load_rows<kDeltaRows, kDeltaRows, kPairStride>(t.solved, pair_rows(at), solved);
    load_numbers(t.numbers[at.at], *n);
  }
  __device__ __forceinline__ void load_queries(const DeltaTask& t, const DeltaPlace& at) const {
    load_rows<kDeltaRows, kKeys, kStride>(t.q, key_rows(t, at, t.p.q), q);
    load_rows<kDeltaRows, kDeltaRows, kPairStride>(t.scores, pair_rows(at), scores);
  }
  __device__ __forceinline__ void prefetch_keys(const DeltaTask& t, const DeltaPlace& at) const {
    prefetch_rows(t.k, key_rows(t, at, t.p.k), kKeys);
    prefetch_rows(t.solved, pair_rows(at), kDeltaRows);
  }
  __device__ __forceinline__ void prefetch_queries(const DeltaTask& t, const DeltaPlace& at) const {
    prefetch_rows(t.q, key_rows(t, at, t.p.q), kKeys);
    prefetch_rows(t.scores, pair_rows(at), kDeltaRows);
  }
  __device__ __forceinline__ void store_state(void* to, const DeltaRowsOf& of) const {
    constexpr int kTwos = kColumns<kKeys> / 2;
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * kTwos; i += kDeltaThreads) {
      const int r = i / kTwos, c = i % kTwos * 2;
      store_two(to, of, {r, c}, {state[r * kValues + c], state[r * kValues + c + 1]});
    }
  }
};

template <int kKeys>
using ValueProduct = DeltaProduct<kDeltaRows, kColumns<kKeys>>;
// The state before the chunk, as the chunk passes it on.
template <int kKeys>
__device__ __forceinline__ DeltaProduct<kKeys, kColumns<kKeys>> passed_state(
    const ScanTiles<kKeys>& s) {
  DeltaProduct<kKeys, kColumns<kKeys>> passed;
  passed.each([&](int r, int c, float& x, float& y) {
    x = s.n->passed * s.state[r * s.kValues + c];
    y = s.n->passed * s.state[r * s.kValues + c + 1];
  });
  return passed;
}
template <int kKeys>
__device__ __forceinline__ void times_rows(ValueProduct<kKeys>& x, const float* factors) {
  x.each([&](int r, int, float& a, float& b) { a *= factors[r], b *= factors[r]; });
}

// Forward, of a chunk whose tiles are there: U in the place of the values, the state behind it in
// that of the one before.
template <int kKeys, DeltaScan kWhat>
__device__ __forceinline__ void scan_chunk(const DeltaTask& t, const DeltaPlace& at,
                                           const ScanTiles<kKeys>& s, int64_t column) {
  using S = ScanTiles<kKeys>;
  constexpr bool kOutputs = kWhat == DeltaScan::outputs;
  ValueProduct<kKeys> known, o, news;
  known.add(Along<S::kStride>{s.k}, Across<S::kValues>{s.state}, 0, kKeys);
  known.each([&](int r, int c, float x, float y) {
    float* const v = s.values + r * S::kValues + c;
    v[0] = __fmaf_rn(-s.n->read_k[r], x, v[0]);
    v[1] = __fmaf_rn(-s.n->read_k[r], y, v[1]);
  });
  if constexpr (kOutputs) {
    o.add(Along<S::kStride>{s.q}, Across<S::kValues>{s.state}, 0, kKeys);
    times_rows<kKeys>(o, s.n->read_q);
  }
  __syncthreads();
  news.add(Along<kPairStride>{s.solved}, Across<S::kValues>{s.values}, 0, news.end_row());
  if constexpr (!kOutputs) store_product(t.news, kept_rows(t, at, column), news);
  times_rows<kKeys>(news, s.n->beta);
  __syncthreads();
  news.put(s.values, S::kValues);
  __syncthreads();
  if constexpr (kOutputs) {
    o.add(Along<kPairStride>{s.scores}, Across<S::kValues>{s.values}, 0, o.end_row());
    store_product(t.o, value_rows(t, at, t.p.o, column), o);
  }
  if (at.chunk + 1 == t.n_chunks && t.next_state == nullptr) return;
  auto next = passed_state<kKeys>(s);
  next.add(Across<S::kStride>{s.k}, AcrossTimes<S::kValues>{s.values, s.n->write_k}, 0, kDeltaRows);
  next.put(s.state, S::kValues);
}

template <int kKeys, DeltaScan kWhat>
__global__ void __launch_bounds__(kDeltaThreads, 1)
    delta_scan(const __grid_constant__ DeltaTask t) {
  constexpr int kCols = kColumns<kKeys>, kValues = kValueStride<kKeys>;
  constexpr bool kOutputs = kWhat == DeltaScan::outputs;
  extern __shared__ __align__(16) float shared[];
  const ScanTiles<kKeys> s(shared);
  const Columns columns = columns_of(t, kCols);
  DeltaRowsOf first_state = state_rows(t, t.p.state, columns.pair, columns.first);
  if (t.state == nullptr) first_state.rows = 0;
  load_rows<kKeys, kCols, kValues>(t.state, first_state, s.state);
  for (int64_t chunk = 0; chunk < t.n_chunks; ++chunk) {
    const DeltaPlace at = delta_place(t, columns.pair, chunk);
    __syncthreads();
    s.load_keys(t, at);
    if constexpr (kOutputs) s.load_queries(t, at);
    load_rows<kDeltaRows, kCols, kValues>(t.v, value_rows(t, at, t.p.v, columns.first), s.values);
    if constexpr (!kOutputs)
      s.store_state(t.states, state_rows(t, Dtype::f32, at.at, columns.first));
    __syncthreads();
    if (chunk + 1 < t.n_chunks) {
      const DeltaPlace next = delta_place(t, columns.pair, chunk + 1);
      s.prefetch_keys(t, next);
      if constexpr (kOutputs) s.prefetch_queries(t, next);
      prefetch_rows(t.v, value_rows(t, next, t.p.v, columns.first), kCols);
    }
    scan_chunk<kKeys, kWhat>(t, at, s, columns.first);
  }
  if (!kOutputs || t.next_state == nullptr) return;
  __syncthreads();
  s.store_state(t.next_state, state_rows(t, t.p.next_state, columns.pair, columns.first));
}

// Backward: `state` has the gradient of that behind the chunk, then of that before it; `values` has
// do.
template <int kKeys>
__device__ __forceinline__ void back_chunk(const DeltaTask& t, const DeltaPlace& at,
                                           const ScanTiles<kKeys>& s, int64_t column) {
  using S = ScanTiles<kKeys>;
  ValueProduct<kKeys> du, e;
  if (at.chunk + 1 < t.n_chunks) {
    du.add(Along<S::kStride>{s.k}, Across<S::kValues>{s.state}, 0, kKeys);
    times_rows<kKeys>(du, s.n->write_k);
  }
  du.add(Across<kPairStride>{s.scores}, Across<S::kValues>{s.values}, du.first_row(), kDeltaRows);
  times_rows<kKeys>(du, s.n->beta);
  du.put(s.y, S::kValues);
  __syncthreads();
  e.add(Across<kPairStride>{s.solved}, Across<S::kValues>{s.y}, e.first_row(), kDeltaRows);
  store_product(t.dnews, kept_rows(t, at, column), e);
  store_product(t.dv, value_rows(t, at, t.p.dv, column), e);
  if (at.chunk == 0) return;
  __syncthreads();
  e.each([&](int r, int, float& a, float& b) { a *= -s.n->read_k[r], b *= -s.n->read_k[r]; });
  e.put(s.y, S::kValues);
  __syncthreads();
  auto next = passed_state<kKeys>(s);
  next.add(Across<S::kStride>{s.q}, AcrossTimes<S::kValues>{s.values, s.n->read_q}, 0, kDeltaRows);
  next.add(Across<S::kStride>{s.k}, Across<S::kValues>{s.y}, 0, kDeltaRows);
  next.put(s.state, S::kValues);
}

template <int kKeys>
__global__ void __launch_bounds__(kDeltaThreads, 1)
    delta_back(const __grid_constant__ DeltaTask t) {
  constexpr int kCols = kColumns<kKeys>, kValues = kValueStride<kKeys>;
  extern __shared__ __align__(16) float shared[];
  const ScanTiles<kKeys> s(shared);
  const Columns columns = columns_of(t, kCols);
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kValues; i += kDeltaThreads)
    s.state[i] = 0;
  for (int64_t chunk = t.n_chunks; chunk-- > 0;) {
    const DeltaPlace at = delta_place(t, columns.pair, chunk);
    __syncthreads();
    s.load_keys(t, at);
    s.load_queries(t, at);
    load_rows<kDeltaRows, kCols, kValues>(t.dout, value_rows(t, at, t.p.dout, columns.first),
                                          s.values);
    s.store_state(t.dstates, state_rows(t, Dtype::f32, at.at, columns.first));
    __syncthreads();
    if (chunk > 0) {
      const DeltaPlace next = delta_place(t, columns.pair, chunk - 1);
      s.prefetch_keys(t, next);
      s.prefetch_queries(t, next);
      prefetch_rows(t.dout, value_rows(t, next, t.p.dout, columns.first), kCols);
    }
    back_chunk<kKeys>(t, at, s, columns.first);
  }
}

}  // namespace

void launch_delta_scan(const DeltaTask& t, DeltaScan what, cudaStream_t stream) {
  visit_delta_keys(t.p, [&]<int kKeys>() {
    const auto bytes = static_cast<size_t>(delta_shared(kKeys).scan);
    const unsigned grid = grid_of(delta_pairs(t.p) * delta_slices(t.p));
    const auto kernel = what == DeltaScan::outputs ? delta_scan<kKeys, DeltaScan::outputs>
                                                   : delta_scan<kKeys, DeltaScan::states>;
    allow_shared(kernel, bytes);
    kernel<<<grid, kDeltaThreads, bytes, stream>>>(t);
    check_launch("delta_scan");
  });
}

void launch_delta_back(const DeltaTask& t, cudaStream_t stream) {
  visit_delta_keys(t.p, [&]<int kKeys>() {
    const auto bytes = static_cast<size_t>(delta_shared(kKeys).back);
    allow_shared(delta_back<kKeys>, bytes);
    const unsigned grid = grid_of(delta_pairs(t.p) * delta_slices(t.p));
    delta_back<kKeys><<<grid, kDeltaThreads, bytes, stream>>>(t);
    check_launch("delta_back");
  });
}

}  // namespace octet::cuda
