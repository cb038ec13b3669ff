#include "backends/cuda/kernels/adamw/adamw_begin.h"

#include <algorithm>

#include "formats/bits.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 128;

struct Decision {
  double norm;
  float scale;
  bool skipped;
};

// As finish_norm. Squares of finite numbers do not overflow a double.
__device__ Decision decide(const BeginCall& call) {
  if (!call.has_squares) return {static_cast<double>(__uint_as_float(kF32Nan)), 1.0f, false};
  const double squares = call.control->squares, norm = sqrt(squares), limit = call.clip;
  const double ratio = limit / (norm + 1e-6);
  return {norm, limit > 0 && ratio < 1 ? static_cast<float>(ratio) : 1.0f, !isfinite(squares)};
}

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
  const OctetCudaNumbers& numbers = call.numbers[weight.numbers];
  row.call.g = call.gradients[row.weight] + row.first * weight.gradient_bytes;
  row.call.p.beta1 = static_cast<float>(numbers.beta1);
  row.call.p.beta2 = static_cast<float>(numbers.beta2);
  row.call.p.eps = static_cast<float>(numbers.eps);
  row.call.p.weight_decay = static_cast<float>(numbers.weight_decay);
}

__global__ void __launch_bounds__(kThreads) begin_step(const __grid_constant__ BeginCall call) {
  const Decision decision = decide(call);
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < call.n_weights) begin_weight(call, i, decision.skipped);
  if (i < call.n_rows) begin_row(call, call.rows[i]);
  if (i != 0) return;
  OctetCudaControl& control = *call.control;
  control.grad_norm = decision.norm;
  control.grad_scale = decision.scale;
  control.skipped = decision.skipped ? 1 : 0;
  ++control.attempt;
  ++(decision.skipped ? control.n_skipped : control.n_applied);
}

template <size_t kWords>
struct Payload {
  uint32_t* to;
  uint32_t n_words;
  uint32_t word[kWords];
};

template <size_t kWords>
__global__ void __launch_bounds__(256) write(const __grid_constant__ Payload<kWords> payload) {
  const uint32_t i = blockIdx.x * 256 + threadIdx.x;
  if (i < payload.n_words) payload.to[i] = payload.word[i];
}

// Parameters of one launch hold 32,764 bytes.
constexpr size_t kFewWords = 256, kMostWords = 8180;

template <size_t kWords>
void write_words(uint32_t* to, const void* from, size_t n_bytes, cudaStream_t stream) {
  Payload<kWords> payload;
  payload.to = to;
  payload.n_words = static_cast<uint32_t>((n_bytes + 3) / 4);
  std::memcpy(payload.word, from, n_bytes);
  write<kWords><<<(payload.n_words + 255) / 256, 256, 0, stream>>>(payload);
}

}  // namespace

void launch_begin(const BeginCall& call, cudaStream_t stream) {
  const uint32_t n = std::max({call.n_weights, call.n_rows, 1u});
  begin_step<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(call);
  check_launch("adamw_step's beginning");
}

void launch_write(void* to, const void* from, size_t n_bytes, cudaStream_t stream) {
  for (size_t done = 0; done < n_bytes; done += kMostWords * 4) {
    const size_t n = std::min(n_bytes - done, kMostWords * 4);
    auto* at = reinterpret_cast<uint32_t*>(static_cast<char*>(to) + done);
    const char* source = static_cast<const char*>(from) + done;
    if (n <= kFewWords * 4) {
      write_words<kFewWords>(at, source, n, stream);
    } else {
      write_words<kMostWords>(at, source, n, stream);
    }
  }
  check_launch("writing parameters");
}

}  // namespace octet::cuda
