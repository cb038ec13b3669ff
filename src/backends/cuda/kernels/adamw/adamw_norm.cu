// The norm of all gradients: one block sums the squares of one chunk, then one block sums those.
#include <vector>

#include "backends/cuda/kernels/adamw/adamw.h"
#include "backends/cuda/kernels/adamw/adamw_many.h"
#include "backends/cuda/kernels/adamw/adamw_walk.cuh"
#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/params/update.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;  // elements that a thread squares in f32 before it adds in double
constexpr int kTensorsPerLaunch = 128;
constexpr int kFinishThreads = 1024;

struct Gradient {
  const void* data;
  int64_t n;
};
// By value in the launch: the addresses need no memory of the device.
struct GradientTable {
  Gradient gradient[kTensorsPerLaunch];
  int32_t first_chunk[kTensorsPerLaunch + 1];
  uint8_t dtype[kTensorsPerLaunch];
  int32_t n_gradients;
};

// The sum of eight squares: in f32 where no square can leave its range by overflow or underflow,
// else in double.
__device__ __forceinline__ double sum_of_squares(const float (&x)[kWide]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWide; ++i) sum = __fmaf_rn(x[i], x[i], sum);
  if (sum > 1e-35f && sum < 1e36f) return sum;
  double exact = 0;
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    const double wide = x[i];
    exact = __fma_rn(wide, wide, exact);
  }
  return exact;
}

template <Dtype D>
__device__ double chunk_sum(const Gradient& gradient, int64_t first) {
  const auto* x = static_cast<const Storage<D>*>(gradient.data) + first;
  const int64_t left = gradient.n - first;
  const int n = static_cast<int>(left < kNormChunk ? left : kNormChunk);
  const bool aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  const int n_vector = aligned ? n / kWide * kWide : 0;
  constexpr int kPack = 16 / sizeof(Storage<D>);
  double sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x * kWide; i < n_vector; i += kThreads * kWide) {
    float values[kWide];
#pragma unroll
    for (int part = 0; part < kWide / kPack; ++part) {
      const auto pack = load_pack<kPack>(x + i + part * kPack);
#pragma unroll
      for (int j = 0; j < kPack; ++j) values[part * kPack + j] = to_float<D>(pack.at[j]);
    }
    sum += sum_of_squares(values);
  }
  for (int i = n_vector + threadIdx.x; i < n; i += kThreads) {
    const double wide = to_float<D>(x[i]);
    sum = __fma_rn(wide, wide, sum);
  }
  return sum;
}

__device__ double chunk_sum_of(Dtype dtype, const Gradient& gradient, int64_t first) {
  switch (dtype) {
    case Dtype::f32:
      return chunk_sum<Dtype::f32>(gradient, first);
    case Dtype::bf16:
      return chunk_sum<Dtype::bf16>(gradient, first);
    default:
      return chunk_sum<Dtype::fp16>(gradient, first);
  }
}

// The sum over the block's threads, in thread 0; always in the same order.
template <int kBlock>
__device__ double block_sum(double sum) {
  __shared__ double of_warp[kBlock / 32];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kBlock / 32; ++i) total += of_warp[i];
  }
  return total;
}

// By one block of kFinishThreads; in thread 0.
__device__ double ordered_sum(const double* sums, int64_t n) {
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < n; i += kFinishThreads) sum += sums[i];
  return block_sum<kFinishThreads>(sum);
}

__global__ void __launch_bounds__(kThreads)
    sum_chunks(const __grid_constant__ GradientTable table, double* sums) {
  const int chunk = static_cast<int>(blockIdx.x);
  int lo = 0, hi = table.n_gradients - 1;  // the last gradient whose first chunk is not behind
  while (lo < hi) {
    const int middle = (lo + hi + 1) / 2;
    if (table.first_chunk[middle] <= chunk) {
      lo = middle;
    } else {
      hi = middle - 1;
    }
  }
  const Gradient& gradient = table.gradient[lo];
  const int64_t first = static_cast<int64_t>(chunk - table.first_chunk[lo]) * kNormChunk;
  const double sum = chunk_sum_of(static_cast<Dtype>(table.dtype[lo]), gradient, first);
  const double total = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[chunk] = total;
}

// The same with the list in the device's memory, for any number of gradients.
__global__ void __launch_bounds__(kThreads) sum_listed_chunks(const GradientList list) {
  const auto chunk = static_cast<uint32_t>(blockIdx.x);
  uint32_t at = 0;
  if (threadIdx.x < 32) at = last_reached(list.first_chunk, list.n_gradients, chunk);
  __shared__ uint32_t found;
  if (threadIdx.x == 0) found = at;
  __syncthreads();
  at = found;
  const Gradient gradient{list.address[at], list.n[at]};
  const int64_t first = static_cast<int64_t>(chunk - list.first_chunk[at]) * kNormChunk;
  const double sum = chunk_sum_of(static_cast<Dtype>(list.dtype[at]), gradient, first);
  const double total = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) list.sums[chunk] = total;
}

__global__ void __launch_bounds__(kFinishThreads)
    add_sums(const double* sums, int64_t n, double* squares) {
  const double total = ordered_sum(sums, n);
  if (threadIdx.x == 0) *squares = total;
}

struct NormResults {
  float *norm, *grad_scale;
  uint8_t* found_nonfinite;
};

// Squares of finite numbers do not overflow a double: the sum tells whether all were finite.
__global__ void __launch_bounds__(kFinishThreads)
    finish_norm(const double* sums, int64_t n, const float* clip, NormResults to) {
  const double total = ordered_sum(sums, n);
  if (threadIdx.x != 0) return;
  const double norm = sqrt(total), limit = *clip;
  const double ratio = limit / (norm + 1e-6);
  *to.norm = static_cast<float>(norm);
  // As std::min(1, ratio): a NaN ratio gives 1.
  *to.grad_scale = limit > 0 && ratio < 1 ? static_cast<float>(ratio) : 1.0f;
  *to.found_nonfinite = isfinite(total) ? 0 : 1;
}

class GlobalNorm : public Prepared {
 public:
  GlobalNorm(const GlobalNormParams& params, std::span<const int64_t> list) {
    for (int64_t i = 0; i < params.n_gradients; ++i) {
      sizes_.push_back(list[static_cast<size_t>(2 * i)]);
      dtypes_.push_back(static_cast<uint8_t>(list[static_cast<size_t>(2 * i + 1)]));
    }
  }

  void launch(const Launch& args) override {
    auto* sums = static_cast<double*>(args.scratch);
    int64_t done = 0;
    GradientTable table{};
    for (size_t i = 0; i < sizes_.size(); ++i) {
      if (sizes_[i] > 0) add(table, args.operands[i + 1], i);
      const bool last = i + 1 == sizes_.size();
      if (table.n_gradients < kTensorsPerLaunch && !last) continue;
      done += run(table, sums + done, args.stream);
      table = {};
    }
    finish_norm<<<1, kFinishThreads, 0, args.stream>>>(
        sums, done, args.in<float>(0),
        {args.out<float>(0), args.out<float>(1), args.out<uint8_t>(2)});
    check_launch("global_norm");
  }

 private:
  void add(GradientTable& table, const void* data, size_t i) const {
    const int at = table.n_gradients++;
    table.gradient[at] = {data, sizes_[i]};
    table.dtype[at] = dtypes_[i];
    table.first_chunk[at + 1] =
        table.first_chunk[at] + static_cast<int32_t>(norm_chunks(sizes_[i]));
  }
  static int64_t run(const GradientTable& table, double* sums, cudaStream_t stream) {
    const int32_t n_chunks = table.first_chunk[table.n_gradients];
    if (n_chunks == 0) return 0;
    sum_chunks<<<static_cast<unsigned>(n_chunks), kThreads, 0, stream>>>(table, sums);
    check_launch("global_norm");
    return n_chunks;
  }

  std::vector<int64_t> sizes_;
  std::vector<uint8_t> dtypes_;
};

}  // namespace

void launch_squares(const GradientList& list, uint32_t n_chunks, cudaStream_t stream) {
  if (n_chunks > 0) sum_listed_chunks<<<n_chunks, kThreads, 0, stream>>>(list);
  add_sums<<<1, kFinishThreads, 0, stream>>>(list.sums, n_chunks, list.squares);
  check_launch("global_norm");
}

std::unique_ptr<Prepared> prepare_global_norm(const Request& request) {
  return std::make_unique<GlobalNorm>(request.get<GlobalNormParams>(),
                                      request.tail<GlobalNormParams>());
}

}  // namespace octet::cuda
