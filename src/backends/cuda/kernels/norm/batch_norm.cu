// Batch norm and its gradient: params/pictures.h. Three kernels each: sums of blocks of rows, the
// statistics and numbers of each column, and what is made of every element.
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/params/pictures.h"

namespace octet::cuda {
namespace {

struct Tensor {
  const void* data = nullptr;
  Dtype dtype = Dtype::f32;
};
struct MutableTensor {
  void* data = nullptr;
  Dtype dtype = Dtype::f32;
};
Tensor operand(const UnquantizedArg& arg, const Launch& args) {
  return {arg.at == kAbsent ? nullptr : args.operands[arg.at], arg.dtype};
}
MutableTensor result(const UnquantizedArg& arg, const Launch& args) {
  return {arg.at == kAbsent ? nullptr : args.results[arg.at], arg.dtype};
}
__device__ __forceinline__ float at(const Tensor& x, int64_t i) {
  return load_float(x.data, i, x.dtype);
}
__device__ __forceinline__ void set(const MutableTensor& x, int64_t i, float v) {
  if (x.data != nullptr) store_float(x.data, i, x.dtype, v);
}

// kWidth columns of a row.
template <int kWidth>
__device__ __forceinline__ void load_columns(const Tensor& x, int64_t i, float (&v)[kWidth]) {
  if constexpr (kWidth == 1) {
    v[0] = at(x, i);
  } else {
    widen8(load_raw8(x.data, i, x.dtype), x.dtype, v);
  }
}
template <int kWidth>
__device__ __forceinline__ void store_columns(const MutableTensor& y, int64_t i,
                                              const float (&v)[kWidth]) {
  if constexpr (kWidth == 1) {
    store_float(y.data, i, y.dtype, v[0]);
  } else {
    store_raw8(y.data, i, y.dtype, narrow8(v, y.dtype));
  }
}
// f32 numbers of columns.
template <int kWidth>
__device__ __forceinline__ void load_numbers(const float* from, float (&v)[kWidth]) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) v[k] = from[k];
}

// The two sums of each block [2, row blocks, cols], then numbers of each column.
struct NormScratch {
  float *first, *second, *mean, *factor, *addend, *slope;
};
NormScratch scratch_of(const Launch& args, const NormGrid& grid, int64_t cols) {
  NormScratch s;
  s.first = static_cast<float*>(args.scratch);
  s.second = s.first + grid.row_blocks * cols;
  s.mean = s.second + grid.row_blocks * cols;
  s.factor = s.mean + cols;
  s.addend = s.factor + cols;
  s.slope = s.addend + cols;
  return s;
}

// dy absent: first the mean of x over the block's rows, second the sum of squares about it. Else
// first the sum of dy, second of dy (x - mean).
struct SumTask {
  Tensor x, dy, mean;
  int64_t rows, cols;
  NormGrid grid;
  NormScratch to;
};

template <int kWidth, bool kGradient>
__global__ void __launch_bounds__(kNormThreads) block_sums(const __grid_constant__ SumTask t) {
  __shared__ float sums[kNormThreads][2 * kWidth + 1];
  const int lanes = static_cast<int>(t.grid.lanes), beside = static_cast<int>(kNormThreads) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes,
            first = static_cast<int>(threadIdx.x) / lanes;
  const int64_t column = (int64_t{blockIdx.y} * lanes + lane) * kWidth;
  const int64_t begin = blockIdx.x * t.grid.rows_of_block;
  const int64_t end = min(t.rows, begin + t.grid.rows_of_block);
  const bool is_active = first < beside && column < t.cols;
  float about[kWidth] = {}, a[kWidth] = {}, b[kWidth] = {};
  if (is_active) {
    if constexpr (kGradient) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) about[k] = at(t.mean, column + k);
    } else {
      load_columns<kWidth>(t.x, begin * t.cols + column, about);
    }
    for (int64_t row = begin + first; row < end; row += beside) {
      float x[kWidth], dy[kWidth];
      load_columns<kWidth>(t.x, row * t.cols + column, x);
      if constexpr (kGradient) load_columns<kWidth>(t.dy, row * t.cols + column, dy);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const float d = x[k] - about[k];
        a[k] += kGradient ? dy[k] : d;
        b[k] = fmaf(kGradient ? dy[k] : d, d, b[k]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    sums[threadIdx.x][k] = a[k];
    sums[threadIdx.x][kWidth + k] = b[k];
  }
  // The second half of those that stand beside each other is added to the first.
  for (int n = beside, half = (n + 1) / 2; n > 1; n = half, half = (n + 1) / 2) {
    __syncthreads();
    if (first + half >= n) continue;
#pragma unroll
    for (int k = 0; k < 2 * kWidth; ++k)
      sums[threadIdx.x][k] += sums[threadIdx.x + half * lanes][k];
  }
  if (first > 0 || column >= t.cols) return;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    float sum = sums[threadIdx.x][k], other = sums[threadIdx.x][kWidth + k];
    if constexpr (!kGradient) {
      const float mean = sum / static_cast<float>(end - begin);
      other = fmaf(-sum, mean, other);
      sum = about[k] + mean;
    }
    t.to.first[blockIdx.x * t.cols + column + k] = sum;
    t.to.second[blockIdx.x * t.cols + column + k] = other;
  }
}

struct Moments {
  double n, mean, squares;
};
// Chan et al. 1979.
__device__ __forceinline__ Moments joined(const Moments& a, const Moments& b) {
  if (b.n == 0) return a;
  const double n = a.n + b.n, apart = b.mean - a.mean;
  return {n, a.mean + apart * b.n / n, a.squares + b.squares + apart * apart * a.n * b.n / n};
}

struct StatisticTask {
  BatchNormParams p;
  Tensor weight, bias, mean, variance;
  MutableTensor own_mean, own_variance, next_mean, next_variance;
  NormGrid grid;
  NormScratch s;
};

// In f32, as the steps of the definition.
__device__ __forceinline__ float next_of(float old, float own, double kept, double share) {
  const float next = old * static_cast<float>(kept) + own * static_cast<float>(share);
  return fabsf(next) < 3.402823466e+38f ? next : old;
}

// A warp a column.
__global__ void __launch_bounds__(kNormThreads)
    statistics(const __grid_constant__ StatisticTask t) {
  const int64_t c = (int64_t{blockIdx.x} * kNormThreads + threadIdx.x) / 32;
  if (c >= t.p.cols) return;
  const int lane = threadIdx.x % 32;
  float mean = 0, variance = 0;
  if (t.p.own) {
    Moments m{0, 0, 0};
    for (int64_t k = lane; k < t.grid.row_blocks; k += 32) {
      const double squares = t.s.second[k * t.p.cols + c];
      const int64_t begin = k * t.grid.rows_of_block;
      const Moments here{static_cast<double>(min(t.grid.rows_of_block, t.p.rows - begin)),
                         t.s.first[k * t.p.cols + c], squares < 0 ? 0.0 : squares};
      m = joined(m, here);
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const Moments other{__shfl_xor_sync(~0u, m.n, step), __shfl_xor_sync(~0u, m.mean, step),
                          __shfl_xor_sync(~0u, m.squares, step)};
      m = joined(m, other);
    }
    mean = static_cast<float>(m.mean);
    variance = static_cast<float>(m.squares / m.n);
  } else {
    mean = at(t.mean, c), variance = at(t.variance, c);
  }
  if (lane != 0) return;
  t.s.mean[c] = mean;
  t.s.factor[c] = 1.0f / sqrtf(variance + t.p.eps) * at(t.weight, c);
  t.s.addend[c] = at(t.bias, c);
  if (!t.p.own) return;
  set(t.own_mean, c, mean);
  set(t.own_variance, c, variance);
  const double kept = 1 - t.p.momentum;
  set(t.next_mean, c, next_of(at(t.mean, c), mean, kept, t.p.momentum));
  set(t.next_variance, c, next_of(at(t.variance, c), variance, kept, t.p.variance_share));
}

struct GradientTask {
  BatchNormGradParams p;
  Tensor mean, variance, weight;
  MutableTensor dw, db;
  NormGrid grid;
  NormScratch s;
};

__global__ void __launch_bounds__(kNormThreads)
    gradient_numbers(const __grid_constant__ GradientTask t) {
  const int64_t c = (int64_t{blockIdx.x} * kNormThreads + threadIdx.x) / 32;
  if (c >= t.p.cols) return;
  const int lane = threadIdx.x % 32;
  double sum = 0, along = 0;
  for (int64_t k = lane; k < t.grid.row_blocks; k += 32) {
    sum += static_cast<double>(t.s.first[k * t.p.cols + c]);
    along += static_cast<double>(t.s.second[k * t.p.cols + c]);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(~0u, sum, step);
    along += __shfl_xor_sync(~0u, along, step);
  }
  if (lane != 0) return;
  const double rstd = 1.0f / sqrtf(at(t.variance, c) + t.p.eps);
  const double factor = rstd * static_cast<double>(at(t.weight, c));
  const auto n = static_cast<double>(t.p.rows);
  set(t.db, c, static_cast<float>(sum));
  set(t.dw, c, static_cast<float>(along * rstd));
  t.s.mean[c] = at(t.mean, c);
  t.s.factor[c] = static_cast<float>(factor);
  t.s.addend[c] = static_cast<float>(-factor * sum / n);
  t.s.slope[c] = static_cast<float>(-factor * rstd * rstd * along / n);
}

// y = (x - mean) factor + addend; with dy: (x - mean) slope + dy factor + addend.
struct ElementTask {
  Tensor x, dy;
  MutableTensor y;
  int64_t n, cols;
  NormScratch s;
};

template <int kWidth, bool kGradient>
__global__ void __launch_bounds__(kThreads) norm_elements(const __grid_constant__ ElementTask t) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= t.n) return;
  const int64_t c = i % t.cols;
  float x[kWidth], dy[kWidth], mean[kWidth], factor[kWidth], addend[kWidth], slope[kWidth];
  load_columns<kWidth>(t.x, i, x);
  if constexpr (kGradient) load_columns<kWidth>(t.dy, i, dy);
  load_numbers<kWidth>(t.s.mean + c, mean);
  load_numbers<kWidth>(t.s.factor + c, factor);
  load_numbers<kWidth>(t.s.addend + c, addend);
  if constexpr (kGradient) load_numbers<kWidth>(t.s.slope + c, slope);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    const float centred = x[k] - mean[k];
    if constexpr (kGradient) {
      x[k] = fmaf(dy[k], factor[k], fmaf(centred, slope[k], addend[k]));
    } else {
      x[k] = fmaf(centred, factor[k], addend[k]);
    }
  }
  store_columns<kWidth>(t.y, i, x);
}

// Eight columns at a time where they lie so.
bool in_eights(int64_t cols, std::initializer_list<const void*> addresses) {
  bool all = cols % kEight == 0;
  for (const void* address : addresses) all = all && is_aligned(address, 16);
  return all;
}
unsigned column_warps(int64_t cols) {
  return grid_of(ceil_div(cols, kNormThreads / 32));
}

template <int kWidth, bool kGradient>
void launch_sums(const SumTask& t, cudaStream_t stream) {
  const dim3 grid(grid_of(t.grid.row_blocks), grid_of(t.grid.column_blocks));
  block_sums<kWidth, kGradient><<<grid, kNormThreads, 0, stream>>>(t);
  check_launch("batch_norm sums");
}
template <int kWidth, bool kGradient>
void launch_elements(const ElementTask& t, cudaStream_t stream) {
  const unsigned grid = grid_of(ceil_div(ceil_div(t.n, kWidth), kThreads));
  norm_elements<kWidth, kGradient><<<grid, kThreads, 0, stream>>>(t);
  check_launch("batch_norm elements");
}

template <int kWidth>
void run_forward(const BatchNormParams& p, const Launch& args) {
  const NormGrid grid = norm_grid(p.rows, p.cols, kWidth);
  const NormScratch s = scratch_of(args, grid, p.cols);
  const Tensor x = operand(p.x, args);
  if (p.own)
    launch_sums<kWidth, false>({.x = x, .rows = p.rows, .cols = p.cols, .grid = grid, .to = s},
                               args.stream);
  statistics<<<column_warps(p.cols), kNormThreads, 0, args.stream>>>(
      {.p = p,
       .weight = operand(p.weight, args),
       .bias = operand(p.bias, args),
       .mean = operand(p.mean, args),
       .variance = operand(p.variance, args),
       .own_mean = result(p.own_mean, args),
       .own_variance = result(p.own_variance, args),
       .next_mean = result(p.next_mean, args),
       .next_variance = result(p.next_variance, args),
       .grid = grid,
       .s = s});
  check_launch("batch_norm statistics");
  const MutableTensor y = result(p.y, args);
  if (y.data == nullptr) return;
  launch_elements<kWidth, false>({.x = x, .y = y, .n = p.rows * p.cols, .cols = p.cols, .s = s},
                                 args.stream);
}

template <int kWidth>
void run_backward(const BatchNormGradParams& p, const Launch& args) {
  const NormGrid grid = norm_grid(p.rows, p.cols, kWidth);
  const NormScratch s = scratch_of(args, grid, p.cols);
  const Tensor x = operand(p.x, args), dy = operand(p.dy, args), mean = operand(p.mean, args);
  launch_sums<kWidth, true>(
      {.x = x, .dy = dy, .mean = mean, .rows = p.rows, .cols = p.cols, .grid = grid, .to = s},
      args.stream);
  gradient_numbers<<<column_warps(p.cols), kNormThreads, 0, args.stream>>>(
      {.p = p,
       .mean = mean,
       .variance = operand(p.variance, args),
       .weight = operand(p.weight, args),
       .dw = result(p.dw, args),
       .db = result(p.db, args),
       .grid = grid,
       .s = s});
  check_launch("batch_norm_grad numbers");
  const MutableTensor dx = result(p.dx, args);
  if (dx.data == nullptr) return;
  launch_elements<kWidth, true>(
      {.x = x, .dy = dy, .y = dx, .n = p.rows * p.cols, .cols = p.cols, .s = s}, args.stream);
}

void run_batch_norm(const BatchNormParams& p, const Launch& args) {
  if (p.cols == 0 || p.rows == 0) return;
  const bool wide = in_eights(p.cols, {operand(p.x, args).data, result(p.y, args).data});
  wide ? run_forward<kEight>(p, args) : run_forward<1>(p, args);
}

void run_batch_norm_grad(const BatchNormGradParams& p, const Launch& args) {
  if (p.cols == 0 || p.rows == 0) return;
  const bool wide = in_eights(
      p.cols, {operand(p.x, args).data, operand(p.dy, args).data, result(p.dx, args).data});
  wide ? run_backward<kEight>(p, args) : run_backward<1>(p, args);
}

constexpr KernelEntry kRows[] = {
    {KernelId::batch_norm, stateless<BatchNormParams, run_batch_norm>},
    {KernelId::batch_norm_grad, stateless<BatchNormGradParams, run_batch_norm_grad>},
};

}  // namespace

std::span<const KernelEntry> batch_norm_kernels() {
  return kRows;
}

}  // namespace octet::cuda
