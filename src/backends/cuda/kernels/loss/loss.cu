// Cross-entropy and its gradient: params/loss.h.
//
// The bits of backends/cpu/reference/card_loss.cpp, which knows the order of the sums.
#include "backends/cuda/kernels/loss/loss.cuh"

#include "backends/cuda/kernels/common/vector8.cuh"
#include "math/exact_functions.h"

namespace octet::cuda {
namespace {

constexpr int kPacks = 4;  // eights of a thread, loaded together

// sum exp(x - top) of what was seen.
struct Softmax {
  float top = -INFINITY, sum = 0;

  // Nothing above -Inf: no shift, so that differences stay defined and a NaN shows.
  __device__ __forceinline__ float shift() const { return top == -INFINITY ? 0.0f : top; }
  __device__ __forceinline__ void raise(float to) {
    if (!(to > top)) return;
    if (top != -INFINITY) sum *= exp_exact(top - to);
    top = to;
  }
  __device__ __forceinline__ void join(float other_top, float other_sum) {
    raise(other_top);
    // The sum is 0 where nothing was seen, or NaN where nothing but NaN was.
    sum += other_top == -INFINITY ? other_sum : other_sum * exp_exact(other_top - top);
  }
};

__device__ __forceinline__ void join_warp(Softmax& s) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float top = __shfl_xor_sync(~0u, s.top, step), sum = __shfl_xor_sync(~0u, s.sum, step);
    s.join(top, sum);
  }
}

// Elements before the first whose address is a multiple of 16 bytes, at most n.
template <Dtype D>
__device__ __forceinline__ int64_t head_of(const Storage<D>* row, int64_t n) {
  const auto over = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(*row));
  return min(n, over == 0 ? int64_t{0} : 16 / static_cast<int64_t>(sizeof(*row)) - over);
}

// Eight elements of -Inf.
template <Dtype D>
__device__ __forceinline__ Raw8 nothing() {
  constexpr uint32_t kWord = D == Dtype::f32    ? 0xFF800000u
                             : D == Dtype::bf16 ? 0xFF80FF80u
                                                : 0xFC00FC00u;
  constexpr uint4 kPart{kWord, kWord, kWord, kWord};
  return {{kPart, kPart}};
}

template <Dtype D>
__device__ __forceinline__ void add_eights(Softmax& s, const Raw8 (&raw)[kPacks]) {
  float v[kPacks][8];
  float top = -INFINITY;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    widen8(raw[p], D, v[p]);
#pragma unroll
    for (int j = 0; j < 8; ++j) top = fmaxf(top, v[p][j]);
  }
  s.raise(top);
  const float shift = s.shift();
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int j = 0; j < 8; ++j) s.sum += exp_exact(v[p][j] - shift);
  }
}

// This thread's part of a row.
template <Dtype D>
__device__ Softmax softmax_of_row(const Storage<D>* row, int64_t n) {
  Softmax s;
  const auto add_one = [&](int64_t i) {
    const float x = to_float<D>(row[i]);
    s.raise(x);
    s.sum += exp_exact(x - s.shift());
  };
  const int64_t head = head_of<D>(row, n);
  const int64_t tail = head + (n - head) / kEight * kEight;
  const int64_t step = int64_t{blockDim.x} * kEight;
  for (int64_t i = head + threadIdx.x * kEight; i < tail; i += step * kPacks) {
    Raw8 raw[kPacks];
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      raw[p] = i + p * step < tail ? load_raw8(row, i + p * step, D) : nothing<D>();
    add_eights<D>(s, raw);
  }
  if (threadIdx.x < head) add_one(threadIdx.x);
  if (tail + threadIdx.x < n) add_one(tail + threadIdx.x);
  return s;
}

// Threads for a row: at least 8, the longest head or tail.
unsigned threads_of(int64_t classes) {
  const int64_t wanted = ceil_div(classes, int64_t{32} * kEight) * 32;
  return static_cast<unsigned>(wanted < kThreads ? wanted : kThreads);
}

struct LossTask {
  const void* logits;
  const int32_t* labels;
  float *lse, *nll, *smoothed;
  int64_t classes;
  float smoothing;
};

// The mean of a row that a block has read before: by thread, by warp, in the order of the warps.
template <Dtype D>
__device__ float mean_of_row(const Storage<D>* row, int64_t n, float (&sums)[kThreads / 32]) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += to_float<D>(row[i]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  __syncthreads();  // the sums of before were read
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) sum += sums[w];
  return sum / static_cast<float>(n);
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads) cross_entropy_rows(const __grid_constant__ LossTask t) {
  __shared__ float tops[kThreads / 32], sums[kThreads / 32];
  const int64_t r = blockIdx.x;
  const auto* row = static_cast<const Storage<D>*>(t.logits) + r * t.classes;
  Softmax s = softmax_of_row<D>(row, t.classes);
  join_warp(s);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) {
    tops[warp] = s.top;
    sums[warp] = s.sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < static_cast<int>(blockDim.x) / 32; ++w) s.join(tops[w], sums[w]);
    const float lse = s.shift() + log_exact(s.sum);
    const int64_t label = t.labels[r];
    t.lse[r] = lse;
    t.nll[r] = label >= 0 && label < t.classes ? lse - to_float<D>(row[label]) : 0.0f;
  }
  if (t.smoothing == 0) return;
  const float mean = mean_of_row<D>(row, t.classes, sums);
  if (threadIdx.x != 0) return;
  const int64_t label = t.labels[r];
  const bool valid = label >= 0 && label < t.classes;
  t.smoothed[r] = t.nll[r] + (valid ? t.smoothing * (to_float<D>(row[label]) - mean) : 0.0f);
}

// loss = inv_n sum of the rows' losses: each thread in the order of its rows, then by halves.
__global__ void __launch_bounds__(1024)
    sum_loss(const float* of_rows, const float* inv_n, float* loss, int64_t rows) {
  __shared__ double sums[1024];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < rows; i += 1024) sum += of_rows[i];
  sums[threadIdx.x] = sum;
  for (int step = 512; step > 0; step /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < step) sums[threadIdx.x] += sums[threadIdx.x + step];
  }
  if (threadIdx.x == 0) *loss = static_cast<float>(sums[0] * static_cast<double>(*inv_n));
}

void run_cross_entropy(const CrossEntropyParams& p, const Launch& args) {
  const LossTask t{.logits = args.operands[0],
                   .labels = args.in<int32_t>(1),
                   .lse = args.out<float>(1),
                   .nll = args.out<float>(2),
                   .smoothed = static_cast<float*>(args.scratch),
                   .classes = p.classes,
                   .smoothing = p.smoothing};
  if (p.rows > 0) {
    visit_high_precision(p.logits, [&]<Dtype D>() {
      cross_entropy_rows<D><<<grid_of(p.rows), threads_of(p.classes), 0, args.stream>>>(t);
    });
  }
  const float* of_rows = p.smoothing == 0 ? t.nll : t.smoothed;
  sum_loss<<<1, 1024, 0, args.stream>>>(of_rows, args.in<float>(2), args.out<float>(0), p.rows);
  check_launch("cross_entropy");
}

struct GradTask {
  const float* dloss;
  const void* logits;
  const int32_t* labels;
  const float *lse, *inv_n;
  void* dlogits;  // may be the logits
  int64_t classes;
  int64_t across;        // blocks of a row
  int64_t dloss_stride;  // from row to row: 0 or 1
  float share, most;     // of a label: every class's, and the rest, which is its own class's
};

struct GradRow {
  float lse, factor, share, most;
  int64_t label;  // -1: the row is zeros

  __device__ __forceinline__ float of(float x, bool hit) const {
    if (label < 0) return 0;
    const float p = exp_exact(x - lse) - share;
    return factor * (hit ? p - most : p);
  }
};

template <Dtype X, Dtype Y>
__device__ __forceinline__ void store_gradients(const GradRow& row, const Raw8& raw, Storage<Y>* y,
                                                int64_t i) {
  float v[8];
  widen8(raw, X, v);
  const int64_t ahead = row.label - i;
  const int hit = ahead >= 0 && ahead < kEight ? static_cast<int>(ahead) : -1;
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = row.of(v[j], j == hit);
  if (reinterpret_cast<uintptr_t>(y + i) % 16 == 0) {
    store_raw8(y, i, Y, narrow8(v, Y));
    return;
  }
#pragma unroll
  for (int j = 0; j < 8; ++j) y[i + j] = from_float<Y>(v[j]);
}

// Results lie where the logits lie, or elsewhere.
template <Dtype X, Dtype Y>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_grads(const __grid_constant__ GradTask t) {
  const int64_t r = blockIdx.x / t.across, part = blockIdx.x % t.across;
  const auto* x = static_cast<const Storage<X>*>(t.logits) + r * t.classes;
  auto* y = static_cast<Storage<Y>*>(t.dlogits) + r * t.classes;
  const int64_t label = t.labels[r];
  const bool valid = label >= 0 && label < t.classes;
  const GradRow row{t.lse[r], t.dloss[r * t.dloss_stride] * *t.inv_n, t.share, t.most,
                    valid ? label : -1};
  const int64_t head = head_of<X>(x, t.classes);
  const int64_t tail = head + (t.classes - head) / kEight * kEight;
  const int64_t step = int64_t{blockDim.x} * kEight;
  const int64_t first = head + part * step * kPacks + threadIdx.x * kEight;
  Raw8 raw[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    raw[p] = nothing<X>();
    if (first + p * step < tail) raw[p] = load_raw8(x, first + p * step, X);
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (first + p * step < tail) store_gradients<X, Y>(row, raw[p], y, first + p * step);
  }
  const auto one = [&](int64_t i) {
    y[i] = from_float<Y>(row.of(to_float<X>(x[i]), i == row.label));
  };
  if (part == 0 && threadIdx.x < head) one(threadIdx.x);
  if (part == 0 && tail + threadIdx.x < t.classes) one(tail + threadIdx.x);
}

void run_cross_entropy_grad(const CrossEntropyParams& p, const Launch& args) {
  if (p.rows == 0) return;
  const unsigned threads = threads_of(p.classes);
  const GradTask t{.dloss = args.in<float>(0),
                   .logits = args.operands[1],
                   .labels = args.in<int32_t>(2),
                   .lse = args.in<float>(3),
                   .inv_n = args.in<float>(4),
                   .dlogits = args.results[0],
                   .classes = p.classes,
                   .across = ceil_div(p.classes, int64_t{threads} * kEight * kPacks),
                   .dloss_stride = p.dloss_stride,
                   .share = p.smoothing / static_cast<float>(p.classes),
                   .most = 1.0f - p.smoothing};
  visit_high_precision(p.logits, [&]<Dtype X>() {
    visit_high_precision(p.dlogits, [&]<Dtype Y>() {
      cross_entropy_grads<X, Y><<<grid_of(p.rows * t.across), threads, 0, args.stream>>>(t);
    });
  });
  check_launch("cross_entropy_grad");
}

constexpr KernelEntry kRows[] = {
    {KernelId::embedding, prepare_embedding},
    {KernelId::embedding_grad, prepare_embedding_grad},
    {KernelId::cross_entropy, stateless<CrossEntropyParams, run_cross_entropy>},
    {KernelId::cross_entropy_grad, stateless<CrossEntropyParams, run_cross_entropy_grad>},
};

}  // namespace

std::span<const KernelEntry> loss_kernels() {
  return kRows;
}

}  // namespace octet::cuda
