// Bias addition, and sums over rows in two stages: parts of the rows first, then the parts.
#include <algorithm>

#include "backends/cuda/kernels/common/row_launch.cuh"
#include "backends/cuda/kernels/common/row_sum.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;

constexpr int kSumCols = 32, kSumLanes = 32;

// A thread adds every 32nd part of one column; then the 32 sums of a column, in order.
__global__ void __launch_bounds__(kSumCols* kSumLanes)
    sum_parts(const float* all_parts, const PartsShape shape, const PartsResults results) {
  const float* const partial = all_parts + blockIdx.y * shape.n_parts * shape.cols;
  const Unquantized y = blockIdx.y == 0 ? results.first : results.second;
  const int64_t cols = shape.cols;
  __shared__ float sums[kSumLanes][kSumCols + 1];
  const int x = threadIdx.x % kSumCols, lane = threadIdx.x / kSumCols;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kSumCols + x;
  float s = 0;
  if (c < cols) {
#pragma unroll 4
    for (int64_t part = lane; part < shape.n_parts; part += kSumLanes)
      s += partial[part * cols + c];
  }
  sums[lane][x] = s;
  __syncthreads();
  if (lane != 0 || c >= cols) return;
  float all = 0;
#pragma unroll 8
  for (int i = 0; i < kSumLanes; ++i) all += sums[i][x];
  store_any(y, c, all);
}

// A block takes kColumns columns of one part of the rows; its rows of threads take turns.
constexpr int kLanes = 32, kColumns = kLanes * 8, kTurns = kThreads / kLanes;

struct SumArgs {
  Unquantized x;
  int64_t rows, cols, rows_per_part;
  float* partial;
};

// D: eight of them at once; real: one by one.
template <Dtype D>
__device__ __forceinline__ void add_row(const SumArgs& a, int64_t row, int64_t col, float (&s)[8]) {
  const int64_t at = row * a.cols + col;
  if constexpr (D != Dtype::real) {
    const uint4 raw = *reinterpret_cast<const uint4*>(static_cast<const uint16_t*>(a.x.data) + at);
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
    float v[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) unpack_pair<D>(words[i], v + 2 * i);
#pragma unroll
    for (int i = 0; i < 8; ++i) s[i] += v[i];
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (col + i < a.cols) s[i] += load_any(a.x.data, a.x.dtype, at + i);
    }
  }
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads) column_parts(const __grid_constant__ SumArgs a) {
  __shared__ float sums[kTurns][kColumns];
  const int lane = threadIdx.x % kLanes, turn = threadIdx.x / kLanes;
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * kLanes + lane) * 8;
  const int64_t begin = blockIdx.y * a.rows_per_part;
  const int64_t end = begin + a.rows_per_part < a.rows ? begin + a.rows_per_part : a.rows;
  float s[8] = {};
  if (col < a.cols) {
#pragma unroll 8
    for (int64_t row = begin + turn; row < end; row += kTurns) add_row<D>(a, row, col, s);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[turn][i * kLanes + lane] = s[i];
  __syncthreads();
  const int i = turn;  // one of the eight columns of each lane
  static_assert(kTurns == 8);
  float all = 0;
#pragma unroll
  for (int k = 0; k < kTurns; ++k) all += sums[k][i * kLanes + lane];
  if (col + i < a.cols) a.partial[blockIdx.y * a.cols + col + i] = all;
}

void run_column_sum(const BiasParams& p, const Launch& launch) {
  if (p.cols == 0) return;
  const int64_t n_blocks = ceil_div(p.cols, kColumns);
  const int64_t most = std::clamp(kRowBlocks / n_blocks, int64_t{1}, kSumParts);
  const int64_t n_parts = row_blocks(ceil_div(p.rows, kTurns), most);
  SumArgs a{operand_of(p.x, launch), p.rows, p.cols, ceil_div(p.rows, n_parts),
            static_cast<float*>(launch.scratch)};
  const dim3 grid(static_cast<unsigned>(n_blocks), static_cast<unsigned>(n_parts));
  if (!p.is_short) {
    column_parts<Dtype::real><<<grid, kThreads, 0, launch.stream>>>(a);
  } else if (p.x.dtype == Dtype::bf16) {
    column_parts<Dtype::bf16><<<grid, kThreads, 0, launch.stream>>>(a);
  } else {
    column_parts<Dtype::fp16><<<grid, kThreads, 0, launch.stream>>>(a);
  }
  check_launch("column_parts");
  launch_sum_parts(a.partial, {n_parts, p.cols}, {result_of(p.y, launch), {}}, launch.stream);
}

struct BiasArgs {
  Unquantized x, bias, y;
  int64_t rows, cols;
};

// Eight of two bytes at a time: a thread keeps its columns of the bias and goes down the rows.
constexpr int kBiasRows = 8;

template <Dtype D>
__device__ __forceinline__ uint4 add_eight(const uint4& raw, const float (&bias)[8]) {
  const uint32_t x[4] = {raw.x, raw.y, raw.z, raw.w};
  uint32_t y[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float u[2];
    unpack_pair<D>(x[k], u);
    y[k] = pack_pair<D>(u[0] + bias[2 * k], u[1] + bias[2 * k + 1]);
  }
  return make_uint4(y[0], y[1], y[2], y[3]);
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads) add_bias_short(const __grid_constant__ BiasArgs a) {
  const int64_t per_row = a.cols / 8;
  const int64_t c = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (c >= per_row) return;
  float bias[8];
  const uint4 raw = static_cast<const uint4*>(a.bias.data)[c];
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int k = 0; k < 4; ++k) unpack_pair<D>(words[k], bias + 2 * k);
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kBiasRows;
  uint4 x[kBiasRows];
#pragma unroll
  for (int r = 0; r < kBiasRows; ++r) {
    if (row0 + r < a.rows) x[r] = static_cast<const uint4*>(a.x.data)[(row0 + r) * per_row + c];
  }
#pragma unroll
  for (int r = 0; r < kBiasRows; ++r) {
    if (row0 + r < a.rows)
      static_cast<uint4*>(a.y.data)[(row0 + r) * per_row + c] = add_eight<D>(x[r], bias);
  }
}

__global__ void __launch_bounds__(kThreads) add_bias_any(const __grid_constant__ BiasArgs a) {
  const int64_t n = a.rows * a.cols, stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    const float b = load_any(a.bias.data, a.bias.dtype, i % a.cols);
    store_any(a.y, i, load_any(a.x.data, a.x.dtype, i) + b);
  }
}

void run_bias_add(const BiasParams& p, const Launch& launch) {
  const int64_t n = p.rows * p.cols;
  if (n == 0) return;
  const BiasArgs a{operand_of(p.x, launch), operand_of(p.bias, launch), result_of(p.y, launch),
                   p.rows, p.cols};
  const Dtype dtype = p.x.dtype;
  if (p.is_short) {
    const dim3 grid(static_cast<unsigned>(ceil_div(p.rows, kBiasRows)),
                    static_cast<unsigned>(ceil_div(p.cols / 8, kThreads)));
    dtype == Dtype::bf16 ? add_bias_short<Dtype::bf16><<<grid, kThreads, 0, launch.stream>>>(a)
                         : add_bias_short<Dtype::fp16><<<grid, kThreads, 0, launch.stream>>>(a);
  } else {
    constexpr int64_t kMaxBlocks = 65536;
    const auto grid = static_cast<unsigned>(row_blocks(ceil_div(n, kThreads), kMaxBlocks));
    add_bias_any<<<grid, kThreads, 0, launch.stream>>>(a);
  }
  check_launch("add_bias");
}

const KernelEntry kRows[] = {{KernelId::bias_add, stateless<BiasParams, run_bias_add>},
                             {KernelId::column_sum, stateless<BiasParams, run_column_sum>}};

}  // namespace

void launch_sum_parts(const float* partial, PartsShape shape, PartsResults y, cudaStream_t stream) {
  if (y.first.data == nullptr || shape.cols == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(shape.cols, kSumCols)),
                  y.second.data == nullptr ? 1 : 2);
  sum_parts<<<grid, kSumCols * kSumLanes, 0, stream>>>(partial, shape, y);
  check_launch("sum_parts");
}

std::span<const KernelEntry> bias_kernels() {
  return kRows;
}

}  // namespace octet::cuda
