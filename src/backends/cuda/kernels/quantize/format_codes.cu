// Arrays to codes and back, one value a thread.
#include <algorithm>

#include "backends/cuda/kernels/quantize/format_arrays.h"
#include "backends/cuda/kernels/quantize/quantize.cuh"
#include "base/philox.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

unsigned blocks_for(int64_t n) {
  return static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMaxBlocks));
}

__device__ __forceinline__ float value_at(const OctetCudaEncoding& call, int64_t i) {
  const auto source = static_cast<Dtype>(call.source);
  if (source == Dtype::f32) return static_cast<const float*>(call.values)[i];
  const uint32_t word = static_cast<const uint16_t*>(call.values)[i];
  return source == Dtype::bf16 ? decode<Dtype::bf16>(word) : decode<Dtype::fp16>(word);
}

// The random words are those of encode_array.
constexpr uint64_t kStream = name_hash("formats");
template <Dtype D>
__global__ void __launch_bounds__(kThreads)
    encode_values(const __grid_constant__ OctetCudaEncoding call) {
  const auto rounding = static_cast<Rounding>(call.rounding);
  const RandomStream stream{.name = kStream, .seed = call.seed};
  EncodeOptions options{.saturate = call.saturate != 0,
                        .nan_to_zero = call.nan_to_zero != 0,
                        .random_bits = 0,
                        .source = static_cast<Dtype>(call.source)};
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < call.n; i += stride) {
    if (call.bits != nullptr) {
      options.random_bits = call.bits[i];
    } else if (rounding == Rounding::sr) {
      options.random_bits = stream.bits(static_cast<uint64_t>(i));
    }
    static_cast<Storage<D>*>(call.codes)[i] =
        static_cast<Storage<D>>(encode<D>(value_at(call, i), rounding, options));
  }
}

template <Dtype D>
__global__ void __launch_bounds__(kThreads)
    decode_codes(const __grid_constant__ OctetCudaDecoding call) {
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < call.n; i += stride) {
    call.values[i] = decode<D>(static_cast<const Storage<D>*>(call.codes)[i]);
  }
}

}  // namespace

void launch_encode_array(const OctetCudaEncoding& call, cudaStream_t stream) {
  if (call.n == 0) return;
  visit_rows_of<is_format>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    encode_values<D><<<blocks_for(call.n), kThreads, 0, stream>>>(call);
  });
  check_launch("encoding an array");
}

void launch_decode_array(const OctetCudaDecoding& call, cudaStream_t stream) {
  if (call.n == 0) return;
  visit_rows_of<is_format>(static_cast<Dtype>(call.format), [&]<Dtype D>() {
    decode_codes<D><<<blocks_for(call.n), kThreads, 0, stream>>>(call);
  });
  check_launch("decoding an array");
}

}  // namespace octet::cuda
