// The norm of all gradients, and what begins a step of many tensors: one block sums the squares of
// one chunk, then one block sums those.
#include <algorithm>
#include <vector>

#include "backends/cuda/kernels/adamw/adamw_common.cuh"
#include "backends/cuda/kernels/common/vector8.cuh"
#include "backends/cuda/kernels/move/write_parts.h"

namespace octet::cuda {
namespace {

constexpr int kFinishThreads = 1024;

// By value in the launch: the addresses need no memory of the device.
struct GradientTable {
  const void* address[kTensorsPerLaunch];
  int64_t n[kTensorsPerLaunch];
  uint32_t first_chunk[kTensorsPerLaunch + 1];
  uint8_t dtype[kTensorsPerLaunch];
  uint32_t n_gradients;
};

// The sum of eight squares: in f32 where no square can leave its range by overflow or underflow,
// else in double.
__device__ __forceinline__ double sum_of_squares(const float (&x)[kEight]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) sum = __fmaf_rn(x[i], x[i], sum);
  if (sum > 1e-35f && sum < 1e36f) return sum;
  double exact = 0;
#pragma unroll
  for (int i = 0; i < kEight; ++i) {
    const double wide = x[i];
    exact = __fma_rn(wide, wide, exact);
  }
  return exact;
}

// Sum over n elements.
template <Dtype D>
__device__ double chunk_sum(const void* from, int64_t first, int n) {
  const auto* x = static_cast<const Storage<D>*>(from) + first;
  const int n_vector = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? n / kEight * kEight : 0;
  double sum = 0;
#pragma unroll 4
  for (int i = threadIdx.x * kEight; i < n_vector; i += kThreads * kEight) {
    float values[kEight];
    widen8(load_raw8(x, i, D), D, values);
    sum += sum_of_squares(values);
  }
  for (int i = n_vector + threadIdx.x; i < n; i += kThreads) {
    const double wide = to_float<D>(x[i]);
    sum = __fma_rn(wide, wide, sum);
  }
  return sum;
}

// The sum over the block's threads, in thread 0; always in the same order.
template <int kBlock>
__device__ double block_sum(double sum) {
  __shared__ double of_warp[kBlock / 32];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kBlock / 32; ++i) total += of_warp[i];
  }
  return total;
}

// List: a GradientTable, or a GradientList for any number of gradients.
template <typename List>
__global__ void __launch_bounds__(kThreads)
    sum_chunks(const __grid_constant__ List list, double* sums) {
  const auto chunk = static_cast<uint32_t>(blockIdx.x);
  __shared__ uint32_t found;
  if (threadIdx.x < 32) {
    const uint32_t at = last_reached(list.first_chunk, list.n_gradients, chunk);
    if (threadIdx.x == 0) found = at;
  }
  __syncthreads();
  const uint32_t at = found;
  const int64_t first = static_cast<int64_t>(chunk - list.first_chunk[at]) * kNormChunk;
  const int n = static_cast<int>(min(list.n[at] - first, kNormChunk));
  const auto dtype = static_cast<Dtype>(list.dtype[at]);
  const void* x = list.address[at];
  double sum = 0;
  visit_type(dtype, [&]<Dtype D>() { sum = chunk_sum<D>(x, first, n); });
  const double total = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[chunk] = total;
}

struct Decision {
  double norm;
  float grad_scale;
  bool skipped;
};
// Like finish_norm. Squares of finite numbers do not overflow a double: the sum tells whether all
// were finite.
__device__ Decision decide(double squares, float clip) {
  const double norm = sqrt(squares), limit = clip, ratio = limit / (norm + 1e-6);
  // Like std::min(1, ratio): a NaN ratio gives 1.
  return {norm, limit > 0 && ratio < 1 ? static_cast<float>(ratio) : 1.0f, !isfinite(squares)};
}

struct NormResults {
  const float* clip;
  float *norm, *grad_scale;
  uint8_t* found_nonfinite;
  double* squares;  // instead of the others
};
__global__ void __launch_bounds__(kFinishThreads)
    finish_norm(const double* sums, int64_t n, const NormResults to) {
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < n; i += kFinishThreads) sum += sums[i];
  const double total = block_sum<kFinishThreads>(sum);
  if (threadIdx.x != 0) return;
  if (to.squares != nullptr) {
    *to.squares = total;
    return;
  }
  const Decision decision = decide(total, *to.clip);
  *to.norm = static_cast<float>(decision.norm);
  *to.grad_scale = decision.grad_scale;
  *to.found_nonfinite = decision.skipped ? 1 : 0;
}

class GlobalNorm : public Prepared {
 public:
  explicit GlobalNorm(std::span<const int64_t> list) : list_(list.begin(), list.end()) {}

  void launch(const Launch& args) override {
    auto* sums = static_cast<double*>(args.scratch);
    int64_t done = 0;
    GradientTable table{};
    for (size_t i = 0; 2 * i < list_.size(); ++i) {
      const int64_t n = list_[2 * i];
      const uint32_t at = table.n_gradients;
      if (n > 0) {
        ++table.n_gradients;
        table.address[at] = args.operands[i + 1], table.n[at] = n;
        table.dtype[at] = static_cast<uint8_t>(list_[2 * i + 1]);
        table.first_chunk[at + 1] = table.first_chunk[at] + static_cast<uint32_t>(norm_chunks(n));
      }
      if (table.n_gradients < kTensorsPerLaunch && 2 * i + 2 < list_.size()) continue;
      const uint32_t n_chunks = table.first_chunk[table.n_gradients];
      if (n_chunks != 0) sum_chunks<<<n_chunks, kThreads, 0, args.stream>>>(table, sums + done);
      done += n_chunks;
      table = {};
    }
    const NormResults to{args.in<float>(0), args.out<float>(0), args.out<float>(1),
                         args.out<uint8_t>(2), nullptr};
    finish_norm<<<1, kFinishThreads, 0, args.stream>>>(sums, done, to);
    check_launch("global_norm");
  }

 private:
  std::vector<int64_t> list_;  // elements and dtype of each
};

constexpr int kBeginThreads = 128;

__device__ void begin_weight(const BeginCall& call, uint32_t i, bool skipped) {
  const CountedWeight weight = call.weights[i];
  const OctetCudaNumbers& numbers = call.numbers[weight.numbers];
  const int64_t t = *weight.t + 1;
  if (!skipped) *weight.t = t;
  const auto n_updates = static_cast<double>(t);
  call.scalars[i] = {numbers.lr_at != nullptr ? *numbers.lr_at : static_cast<float>(numbers.lr),
                     static_cast<float>(1 - pow(numbers.beta1, n_updates)),
                     static_cast<float>(1 - pow(numbers.beta2, n_updates))};
}
__device__ void begin_row(const BeginCall& call, UpdateRow& row) {
  const CountedWeight weight = call.weights[row.weight];
  row.call.g = call.gradients[row.weight] + row.first * weight.gradient_bytes;
  set_numbers(row.call.p, call.numbers[weight.numbers]);
}
__global__ void __launch_bounds__(kBeginThreads)
    begin_step(const __grid_constant__ BeginCall call) {
  Decision decision{static_cast<double>(__uint_as_float(kF32Nan)), 1.0f, false};
  if (call.has_squares) decision = decide(call.control->squares, call.clip);
  const uint32_t i = blockIdx.x * kBeginThreads + threadIdx.x;
  if (i < call.n_weights) begin_weight(call, i, decision.skipped);
  if (i < call.n_rows) begin_row(call, call.rows[i]);
  if (i != 0) return;
  OctetCudaControl& control = *call.control;
  control.grad_norm = decision.norm;
  control.grad_scale = decision.grad_scale;
  control.skipped = decision.skipped ? 1 : 0;
  ++control.attempt;
  ++(decision.skipped ? control.n_skipped : control.n_applied);
}

}  // namespace

void launch_squares(const GradientList& list, uint32_t n_chunks, cudaStream_t stream) {
  if (n_chunks > 0) sum_chunks<<<n_chunks, kThreads, 0, stream>>>(list, list.sums);
  const NormResults to{nullptr, nullptr, nullptr, nullptr, list.squares};
  finish_norm<<<1, kFinishThreads, 0, stream>>>(list.sums, n_chunks, to);
  check_launch("global_norm");
}

void launch_begin(const BeginCall& call, cudaStream_t stream) {
  const uint32_t n = std::max({call.n_weights, call.n_rows, 1u});
  begin_step<<<(n + kBeginThreads - 1) / kBeginThreads, kBeginThreads, 0, stream>>>(call);
  check_launch("adamw_step's beginning");
}

void launch_write(void* to, const void* from, size_t n_bytes, cudaStream_t stream) {
  constexpr size_t kMost = 3072;  // of one launch (move/write_parts.h)
  for (size_t at = 0; at < n_bytes; at += kMost) {
    const OctetCudaPart part{static_cast<char*>(to) + at, static_cast<const char*>(from) + at,
                             static_cast<int64_t>(std::min(n_bytes - at, kMost))};
    launch_write_parts({&part, 1}, stream);
  }
}

std::unique_ptr<Prepared> prepare_global_norm(const Request& request) {
  return std::make_unique<GlobalNorm>(request.tail<GlobalNormParams>());
}

}  // namespace octet::cuda
