// Embedding rows, and their gradient over tokens sorted by id: params/loss.h.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/loss/loss.cuh"

namespace octet::cuda {
namespace {

constexpr int kTile = static_cast<int>(kEmbeddingTile);
constexpr int kDigits = static_cast<int>(kEmbeddingDigits);
constexpr int kDigitBits = 8;
constexpr int kRun = static_cast<int>(kEmbeddingRun);
constexpr int kAhead = 8;  // rows that a thread loads together
static_assert(kDigits == 1 << kDigitBits && kRun % kAhead == 0);

// Eight columns of a row, from the first on; where they cannot be moved together, one by one.
struct Span {
  int64_t first, cols;
  bool whole;

  __device__ __forceinline__ Raw8 load(const void* x, int64_t row, Dtype dtype) const {
    if (whole) return load_raw8(x, row * cols + first, dtype);
    float v[8] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (first + j < cols) v[j] = load_float(x, row * cols + first + j, dtype);
    }
    return narrow8(v, dtype);
  }
  __device__ __forceinline__ void store(void* y, int64_t row, Dtype dtype,
                                        const float (&v)[8]) const {
    if (whole) return store_raw8(y, row * cols + first, dtype, narrow8(v, dtype));
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (first + j < cols) store_float(y, row * cols + first + j, dtype, v[j]);
    }
  }
};

struct LookupTask {
  const void* table;
  const int32_t* ids;
  void* y;
  EmbeddingParams p;
  int64_t across;  // spans of a row
  bool aligned;
};

__global__ void __launch_bounds__(kThreads) look_up(const __grid_constant__ LookupTask t) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t token = at / t.across;
  if (token >= t.p.tokens) return;
  const Span span{(at - token * t.across) * kEight, t.p.cols, t.aligned};
  const int64_t id = t.ids[token];
  float v[8] = {};
  if (id >= 0 && id < t.p.vocabulary) widen8(span.load(t.table, id, t.p.from), t.p.from, v);
  span.store(t.y, token, t.p.to, v);
}

void run_embedding(const EmbeddingParams& p, const Launch& args) {
  if (p.tokens == 0 || p.cols == 0) return;
  LookupTask t{.table = args.operands[0],
               .ids = args.in<int32_t>(1),
               .y = args.results[0],
               .p = p,
               .across = ceil_div(p.cols, kEight),
               .aligned = p.cols % kEight == 0};
  t.aligned = t.aligned && is_aligned(t.table, 16) && is_aligned(t.y, 16);
  look_up<<<grid_of(ceil_div(p.tokens * t.across, kThreads)), kThreads, 0, args.stream>>>(t);
  check_launch("embedding");
}

// One pass of a stable sort by digits, least digit first, of the tokens by id; ids outside the
// vocabulary go last. counts: [digit][tile], then where each begins.
struct SortPass {
  const int32_t* keys;    // the ids themselves in the first pass
  const int32_t* tokens;  // nullptr in the first pass: in order
  int32_t *sorted_keys, *sorted_tokens;
  int32_t* counts;
  int32_t n, vocabulary, n_tiles;
  int shift;

  __device__ int32_t key(int32_t i) const {
    const int32_t id = keys[i];
    return id >= 0 && id < vocabulary ? id : vocabulary;
  }
  __device__ int digit(int32_t key) const { return (key >> shift) & (kDigits - 1); }
};

__global__ void __launch_bounds__(kTile) count_digits(const __grid_constant__ SortPass s) {
  __shared__ int32_t counts[kDigits];
  if (threadIdx.x < kDigits) counts[threadIdx.x] = 0;
  __syncthreads();
  const int32_t i = static_cast<int32_t>(blockIdx.x) * kTile + threadIdx.x;
  if (i < s.n) atomicAdd(&counts[s.digit(s.key(i))], 1);
  __syncthreads();
  if (threadIdx.x < kDigits) s.counts[threadIdx.x * s.n_tiles + blockIdx.x] = counts[threadIdx.x];
}

// counts[i] becomes the sum of those before it. One block, each thread a stretch of its own.
__global__ void __launch_bounds__(1024) sum_counts(int32_t* counts, int32_t n) {
  __shared__ int32_t warp_sums[32];
  const int32_t stretch = (n + 1023) / 1024;
  const int32_t begin = min(n, static_cast<int32_t>(threadIdx.x) * stretch);
  const int32_t end = min(n, begin + stretch);
  int32_t own = 0;
  for (int32_t i = begin; i < end; ++i) own += counts[i];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const auto scan = [&](int32_t x) {
    for (int step = 1; step < 32; step *= 2) {
      const int32_t below = __shfl_up_sync(~0u, x, step);
      if (lane >= step) x += below;
    }
    return x;
  };
  const int32_t up_to = scan(own);
  if (lane == 31) warp_sums[warp] = up_to;
  __syncthreads();
  if (warp == 0) warp_sums[lane] = scan(warp_sums[lane]);
  __syncthreads();
  int32_t before = up_to - own + (warp == 0 ? 0 : warp_sums[warp - 1]);
  for (int32_t i = begin; i < end; ++i) {
    const int32_t count = counts[i];
    counts[i] = before;
    before += count;
  }
}

__global__ void __launch_bounds__(kTile) place_digits(const __grid_constant__ SortPass s) {
  __shared__ int32_t places[kTile / 32][kDigits];  // of each warp's first token with the digit
  for (int i = threadIdx.x; i < kTile / 32 * kDigits; i += kTile)
    places[i / kDigits][i % kDigits] = 0;
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int32_t i = static_cast<int32_t>(blockIdx.x) * kTile + threadIdx.x;
  const bool used = i < s.n;
  const int32_t key = used ? s.key(i) : 0;
  const int digit = used ? s.digit(key) : kDigits;  // no token's digit
  const unsigned same = __match_any_sync(~0u, digit);
  const int rank = __popc(same & ((1u << lane) - 1));
  if (used && rank == 0) places[warp][digit] = __popc(same);
  __syncthreads();
  if (threadIdx.x < kDigits) {
    int32_t place = s.counts[threadIdx.x * s.n_tiles + blockIdx.x];
    for (int w = 0; w < kTile / 32; ++w) {
      const int32_t count = places[w][threadIdx.x];
      places[w][threadIdx.x] = place;
      place += count;
    }
  }
  __syncthreads();
  if (!used) return;
  const int32_t to = places[warp][digit] + rank;
  s.sorted_keys[to] = key;
  s.sorted_tokens[to] = s.tokens == nullptr ? i : s.tokens[i];
}

// The sums of dy's rows over the sorted tokens, a block for each run of kRun of them. What begins
// and ends within the run goes to the table; what crosses its borders to `partial`: [run][0] where
// it is the run's first segment, else [run][1], a row of cols each.
struct SumTask {
  const void* dy;
  void* dtable;
  const int32_t *keys, *tokens;
  float* partial;
  EmbeddingParams p;
  int32_t n_runs;
  bool aligned;

  __device__ int32_t n() const { return static_cast<int32_t>(p.tokens); }
  __device__ bool crosses(int32_t border) const {  // between two runs
    return border > 0 && border < n() && keys[border - 1] == keys[border];
  }
  __device__ int64_t partial_row(int64_t run, bool is_first) const {
    return 2 * run + (is_first ? 0 : 1);
  }
  __device__ Span span() const {
    const int64_t first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kEight;
    return {first, p.cols, aligned};
  }
};

__device__ __forceinline__ void add_row(float (&sum)[8], const Raw8& raw, Dtype dtype) {
  float v[8];
  widen8(raw, dtype, v);
#pragma unroll
  for (int j = 0; j < 8; ++j) sum[j] += v[j];
}

template <Dtype X>
__global__ void __launch_bounds__(kThreads) sum_runs(const __grid_constant__ SumTask t) {
  const Dtype from = known(X, t.p.from), to = known(X, t.p.to);
  const int32_t begin = static_cast<int32_t>(blockIdx.x) * kRun;
  const int32_t end = min(t.n(), begin + kRun);
  const Span span = t.span();
  if (span.first >= t.p.cols) return;
  bool is_first = true;  // the segment under way
  bool opened = t.crosses(begin);
  float sum[8] = {};
  for (int32_t group = begin; group < end; group += kAhead) {
    Raw8 raw[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      raw[k] = Raw8{};
      if (group + k < end) raw[k] = span.load(t.dy, t.tokens[group + k], from);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int32_t i = group + k;
      if (i >= end) continue;
      const int32_t key = t.keys[i];
      add_row(sum, raw[k], from);
      const bool ends = i + 1 == end ? !t.crosses(end) : t.keys[i + 1] != key;
      if (!ends && i + 1 < end) continue;
      if (key < t.p.vocabulary) {
        if (opened || !ends) {
          span.store(t.partial, t.partial_row(blockIdx.x, is_first), Dtype::f32, sum);
        } else {
          span.store(t.dtable, key, to, sum);
        }
      }
      is_first = opened = false;
#pragma unroll
      for (int j = 0; j < 8; ++j) sum[j] = 0;
    }
  }
}

// The block of the run in which a crossing segment begins joins its parts.
__global__ void __launch_bounds__(kThreads) join_runs(const __grid_constant__ SumTask t) {
  const int32_t run = static_cast<int32_t>(blockIdx.x);
  const int32_t begin = run * kRun, end = min(t.n(), begin + kRun);
  if (!t.crosses(end)) return;
  const int32_t key = t.keys[end];
  const bool is_first = t.keys[begin] == key;
  if (key >= t.p.vocabulary || (is_first && t.crosses(begin))) return;
  const Span span = t.span();
  if (span.first >= t.p.cols) return;
  float sum[8] = {};
  add_row(sum, span.load(t.partial, t.partial_row(run, is_first), Dtype::f32), Dtype::f32);
  for (int32_t next = run + 1; next < t.n_runs && t.keys[next * kRun] == key; ++next)
    add_row(sum, span.load(t.partial, t.partial_row(next, true), Dtype::f32), Dtype::f32);
  span.store(t.dtable, key, t.p.to, sum);
}

struct Sorted {
  const int32_t *keys, *tokens;
  int32_t* behind;  // unused scratch
};

Sorted sort_tokens(const EmbeddingParams& p, const int32_t* ids, const Launch& args) {
  const auto n = static_cast<int32_t>(p.tokens);
  auto* scratch = static_cast<int32_t*>(args.scratch);
  int32_t* buffers[2] = {scratch, scratch + 2 * p.tokens};  // keys, tokens
  SortPass s{.keys = ids,
             .tokens = nullptr,
             .sorted_keys = nullptr,
             .sorted_tokens = nullptr,
             .counts = scratch + 4 * p.tokens,
             .n = n,
             .vocabulary = static_cast<int32_t>(p.vocabulary),
             .n_tiles = static_cast<int32_t>(embedding_tiles(p.tokens)),
             .shift = 0};
  const int n_passes = embedding_digits(p.vocabulary);
  for (int pass = 0; pass < n_passes; ++pass, s.shift += kDigitBits) {
    s.sorted_keys = buffers[pass % 2];
    s.sorted_tokens = s.sorted_keys + n;
    count_digits<<<s.n_tiles, kTile, 0, args.stream>>>(s);
    sum_counts<<<1, 1024, 0, args.stream>>>(s.counts, kDigits * s.n_tiles);
    place_digits<<<s.n_tiles, kTile, 0, args.stream>>>(s);
    s.keys = s.sorted_keys;
    s.tokens = s.sorted_tokens;
  }
  const int64_t used = 4 * p.tokens + kDigits * int64_t{s.n_tiles};
  return {s.keys, s.tokens, scratch + (used + 3) / 4 * 4};
}

void run_embedding_grad(const EmbeddingParams& p, const Launch& args) {
  const int64_t n_bytes = p.vocabulary * p.cols * dtype_bytes(p.to);
  if (n_bytes == 0) return;
  check(cudaMemsetAsync(args.results[0], 0, static_cast<size_t>(n_bytes), args.stream),
        "embedding_grad, zeros");
  if (p.tokens == 0) return;
  if (p.tokens > INT32_MAX / kDigits || p.vocabulary >= INT32_MAX)
    throw ModuleError("[embedding_grad] expected fewer than 2^23 tokens and 2^31 rows");
  const Sorted sorted = sort_tokens(p, args.in<int32_t>(1), args);
  const SumTask t{.dy = args.operands[0],
                  .dtable = args.results[0],
                  .keys = sorted.keys,
                  .tokens = sorted.tokens,
                  .partial = reinterpret_cast<float*>(sorted.behind),
                  .p = p,
                  .n_runs = static_cast<int32_t>(embedding_runs(p.tokens)),
                  .aligned = p.cols % kEight == 0 && is_aligned(args.operands[0], 16) &&
                             is_aligned(args.results[0], 16) && is_aligned(sorted.behind, 16)};
  const int64_t wanted = ceil_div(p.cols, 32 * kEight) * 32;
  const auto threads = static_cast<unsigned>(std::min<int64_t>(wanted, kThreads));
  const dim3 grid(static_cast<unsigned>(t.n_runs),
                  static_cast<unsigned>(ceil_div(p.cols, int64_t{threads} * kEight)));
  visit_common(p.from, p.from == p.to,
               [&]<Dtype X>() { sum_runs<X><<<grid, threads, 0, args.stream>>>(t); });
  join_runs<<<grid, threads, 0, args.stream>>>(t);
  check_launch("embedding_grad");
}

}  // namespace

std::unique_ptr<Prepared> prepare_embedding(const Request& request) {
  return stateless<EmbeddingParams, run_embedding>(request);
}
std::unique_ptr<Prepared> prepare_embedding_grad(const Request& request) {
  return stateless<EmbeddingParams, run_embedding_grad>(request);
}

}  // namespace octet::cuda
