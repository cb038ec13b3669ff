// What the gated delta rule needs of each chunk by itself: its numbers, the products of its tokens,
// and the inverse of its triangular system.
#include "backends/cuda/kernels/attention/delta_visit.cuh"

namespace octet::cuda {
namespace {

constexpr int kBlock = 16;  // rows of the triangular system that a warp solves
constexpr int kBlocks = kDeltaRows / kBlock;
template <int kKeys>
constexpr int kResidentBlocks = kKeys == 256 ? 1 : 2;

// The tile's rows in length 1 (times `length`); keeps the factors.
template <int kKeys>
__device__ __forceinline__ void make_unit(float* tile, float length, float* factors) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int r = static_cast<int>(threadIdx.x / 32); r < kDeltaRows; r += kDeltaWarps) {
    float* const row = tile + r * kKeyStride<kKeys>;
    float sum = 0;
#pragma unroll
    for (int c = lane; c < kKeys; c += 32) sum = __fmaf_rn(row[c], row[c], sum);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    const float factor = length / sqrtf(sum + kDeltaLengthEps);
#pragma unroll
    for (int c = lane; c < kKeys; c += 32) row[c] *= factor;
    if (lane == 0) factors[r] = factor;
  }
}

// All but the lengths, by one warp: a lane has two tokens.
__device__ __forceinline__ void make_numbers(const DeltaTask& t, const DeltaPlace& at,
                                             DeltaNumbers& n) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  double each[2];
  int32_t start[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = 2 * lane + i;
    const int64_t token = at.text * t.p.seq + min(at.first + r, t.p.seq - 1);
    const int64_t number = token * t.p.heads + at.head;
    const bool there = r < at.rows;
    each[i] = there ? load_float(t.log_decay, number, t.p.log_decay) : 0.0f;
    start[i] = t.doc_starts == nullptr ? -1 : t.doc_starts[token];
    n.start[r] = start[i];
    n.beta[r] = there ? load_float(t.beta, number, t.p.beta) : 0.0f;
  }
  double sum = each[0] + each[1];
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const double before = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum = before + sum;
  }
  const double last = __shfl_sync(~0u, sum, 31);
  const int32_t last_start = __shfl_sync(~0u, start[1], 31);
  const double sums[2] = {sum - each[1], sum};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = 2 * lane + i;
    n.sums[r] = sums[i];
    n.since[r] = start[i] < at.first ? expf(static_cast<float>(sums[i])) : 0.0f;
    n.behind[r] = start[i] == last_start ? expf(static_cast<float>(last - sums[i])) : 0.0f;
  }
  if (lane == 0) n.passed = last_start < at.first ? expf(static_cast<float>(last)) : 0.0f;
  if (lane < 3) n.reserved[lane] = 0;
}

// solved's blocks along the diagonal: inverses of I + those of x. A lane has a column.
__device__ __forceinline__ void solve_diagonal(const float* x, float* solved) {
  const int block = static_cast<int>(threadIdx.x / 32), column = static_cast<int>(threadIdx.x % 32);
  if (block >= kBlocks || column >= kBlock) return;
  const float* const from = x + block * kBlock * (kPairStride + 1);
  float* const to = solved + block * kBlock * (kPairStride + 1);
  float y[kBlock];
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    float sum = r == column ? 1.0f : 0.0f;
#pragma unroll
    for (int k = 0; k < r; ++k) sum = __fmaf_rn(-from[r * kPairStride + k], y[k], sum);
    y[r] = sum;
    to[r * kPairStride + column] = sum;
  }
}

// The inverse of I + x, which is 0 on and above the diagonal. Blocks `apart` from the diagonal
// follow from those nearer to it; their sums lie in x's upper half on the way.
__device__ __forceinline__ void invert(float* x, float* solved) {
  const int r = static_cast<int>(threadIdx.x) / kBlock, c = static_cast<int>(threadIdx.x) % kBlock;
  for (int i = static_cast<int>(threadIdx.x); i < kDeltaRows * kPairStride; i += kDeltaThreads)
    solved[i] = 0;
  __syncthreads();
  solve_diagonal(x, solved);
  for (int apart = 1; apart < kBlocks; ++apart) {
    __syncthreads();
    for (int begin = 0; begin + apart < kBlocks; ++begin) {
      const int row = (begin + apart) * kBlock + r, column = begin * kBlock + c;
      float sum = 0;
      for (int k = begin * kBlock; k < (begin + apart) * kBlock; ++k)
        sum = __fmaf_rn(x[row * kPairStride + k], solved[k * kPairStride + column], sum);
      x[(begin * kBlock + r) * kPairStride + (begin + apart) * kBlock + c] = sum;
    }
    __syncthreads();
    for (int begin = 0; begin + apart < kBlocks; ++begin) {
      const int row = (begin + apart) * kBlock + r, column = begin * kBlock + c;
      float sum = 0;
#pragma unroll
      for (int k = 0; k < kBlock; ++k) {
        const float there = x[(begin * kBlock + k) * kPairStride + (begin + apart) * kBlock + c];
        sum = __fmaf_rn(-solved[row * kPairStride + (begin + apart) * kBlock + k], there, sum);
      }
      solved[row * kPairStride + column] = sum;
    }
  }
  __syncthreads();
}

template <int kKeys>
__global__ void __launch_bounds__(kDeltaThreads, kResidentBlocks<kKeys>)
    delta_chunks(const __grid_constant__ DeltaTask t) {
  constexpr int kStride = kKeyStride<kKeys>;
  extern __shared__ __align__(16) float shared[];
  float* const q = shared;
  float* const k = q + kDeltaRows * kStride;
  float* const pairs = k + kDeltaRows * kStride;
  float* const solved = pairs + kDeltaRows * kPairStride;
  auto& n = *reinterpret_cast<DeltaNumbers*>(solved + kDeltaRows * kPairStride);
  const DeltaPlace at = delta_place(t, blockIdx.x / t.n_chunks, blockIdx.x % t.n_chunks);
  load_rows<kDeltaRows, kKeys, kStride>(t.q, key_rows(t, at, t.p.q), q);
  load_rows<kDeltaRows, kKeys, kStride>(t.k, key_rows(t, at, t.p.k), k);
  if (threadIdx.x < 32) make_numbers(t, at, n);
  __syncthreads();
  make_unit<kKeys>(q, 1.0f / sqrtf(static_cast<float>(t.p.key_dim)), n.inv_q);
  make_unit<kKeys>(k, 1.0f, n.inv_k);
  __syncthreads();
  if (threadIdx.x < kDeltaRows) {
    const int r = static_cast<int>(threadIdx.x);
    n.read_q[r] = n.since[r] * n.inv_q[r];
    n.read_k[r] = n.since[r] * n.inv_k[r];
    n.write_k[r] = n.behind[r] * n.inv_k[r];
  }
  DeltaProduct<kDeltaRows, kDeltaRows> product;
  product.add(Along<kStride>{k}, Along<kStride>{k}, 0, kKeys);
  const DeltaRowsOf of = pair_rows(at);
  product.each([&](int r, int c, float& x, float& y) {
    x *= c < r ? delta_decay(n, r, c) : 0.0f;
    y *= c + 1 < r ? delta_decay(n, r, c + 1) : 0.0f;
    if (t.blocked != nullptr) store_two(t.blocked, of, {r, c}, {x, y});
    pairs[r * kPairStride + c] = x * n.beta[c];
    pairs[r * kPairStride + c + 1] = y * n.beta[c + 1];
  });
  DeltaProduct<kDeltaRows, kDeltaRows> scores;
  scores.add(Along<kStride>{q}, Along<kStride>{k}, 0, kKeys);
  scores.each([&](int r, int c, float& x, float& y) {
    x *= delta_decay(n, r, c);
    y *= delta_decay(n, r, c + 1);
  });
  store_product(t.scores, of, scores);
  __syncthreads();
  invert(pairs, solved);
  for (int i = static_cast<int>(threadIdx.x) * 4; i < kPairElems; i += kDeltaThreads * 4) {
    const float* const from = solved + i / kDeltaRows * kPairStride + i % kDeltaRows;
    store_pack<4>(t.solved + at.at * kPairElems + i, load_pack<4>(from));
  }
  constexpr int kNumbers = sizeof(DeltaNumbers) / sizeof(float);
  const auto* const numbers = reinterpret_cast<const float*>(&n);
  auto* const to = reinterpret_cast<float*>(t.numbers + at.at);
  for (int i = static_cast<int>(threadIdx.x); i < kNumbers; i += kDeltaThreads) to[i] = numbers[i];
}

}  // namespace

void launch_delta_chunks(const DeltaTask& t, cudaStream_t stream) {
  visit_delta_keys(t.p, [&]<int kKeys>() {
    const auto bytes = static_cast<size_t>(delta_shared(kKeys).chunks);
    allow_shared(delta_chunks<kKeys>, bytes);
    const unsigned grid = grid_of(delta_pairs(t.p) * t.n_chunks);
    delta_chunks<kKeys><<<grid, kDeltaThreads, bytes, stream>>>(t);
    check_launch("delta_chunks");
  });
}

}  // namespace octet::cuda
