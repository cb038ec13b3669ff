// The norm of all gradients, and what begins a step of many tensors: one block sums the squares of
// one chunk, then one block sums those.
#include <algorithm>
#include <vector>

#include "backends/cuda/kernels/adamw/adamw_common.cuh"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;  // elements that a thread squares in f32 before it adds in double
constexpr int kTensorsPerLaunch = 128;
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

// Of n elements.
template <Dtype D>
__device__ double chunk_sum(const void* from, int64_t first, int n) {
  const auto* x = static_cast<const Storage<D>*>(from) + first;
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
  const double sum = dtype == Dtype::f32    ? chunk_sum<Dtype::f32>(x, first, n)
                     : dtype == Dtype::bf16 ? chunk_sum<Dtype::bf16>(x, first, n)
                                            : chunk_sum<Dtype::fp16>(x, first, n);
  const double total = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) sums[chunk] = total;
}

struct Decision {
  double norm;
  float grad_scale;
  bool skipped;
};
// As finish_norm. Squares of finite numbers do not overflow a double: the sum tells whether all
// were finite.
__device__ Decision decide(double squares, float clip) {
  const double norm = sqrt(squares), limit = clip, ratio = limit / (norm + 1e-6);
  // As std::min(1, ratio): a NaN ratio gives 1.
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

// Parameters of one launch hold 32,764 bytes.
constexpr size_t kFewWords = 256, kMaxWords = 8180;
template <size_t kWords>
struct Payload {
  uint32_t* to;
  uint32_t n_words;
  uint32_t word[kWords];
};
template <size_t kWords>
__global__ void __launch_bounds__(kThreads) write(const __grid_constant__ Payload<kWords> payload) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < payload.n_words) payload.to[i] = payload.word[i];
}
template <size_t kWords>
void write_words(char* to, const char* from, size_t n_bytes, cudaStream_t stream) {
  Payload<kWords> payload;
  payload.to = reinterpret_cast<uint32_t*>(to);
  payload.n_words = static_cast<uint32_t>((n_bytes + 3) / 4);
  std::memcpy(payload.word, from, n_bytes);
  write<kWords><<<(payload.n_words + kThreads - 1) / kThreads, kThreads, 0, stream>>>(payload);
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
  for (size_t done = 0; done < n_bytes; done += kMaxWords * 4) {
    const size_t n = std::min(n_bytes - done, kMaxWords * 4);
    const auto write = n <= kFewWords * 4 ? write_words<kFewWords> : write_words<kMaxWords>;
    write(static_cast<char*>(to) + done, static_cast<const char*>(from) + done, n, stream);
  }
  check_launch("writing parameters");
}

std::unique_ptr<Prepared> prepare_global_norm(const Request& request) {
  return std::make_unique<GlobalNorm>(request.tail<GlobalNormParams>());
}

}  // namespace octet::cuda
