#include "backends/cuda/kernels/move/write_parts.h"

#include <cstring>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {
namespace {

constexpr int kParts = 64, kBytes = 3072, kThreads = 256;  // a launch has 4 KB of parameters

struct Payload {
  uint8_t* to[kParts];
  int end[kParts];  // of the bytes up to this part
  int n;
  uint8_t bytes[kBytes];
};

__global__ void __launch_bounds__(kThreads) write_parts(const __grid_constant__ Payload payload) {
  for (int part = 0; part < payload.n; ++part) {
    const int first = part == 0 ? 0 : payload.end[part - 1];
    const int n = payload.end[part] - first;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads)
      payload.to[part][i] = payload.bytes[first + i];
  }
}

}  // namespace

bool has_code_for_device() {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, write_parts);
  if (status != cudaSuccess) cudaGetLastError();  // not sticky: the caller says what is missing
  return status == cudaSuccess;
}

size_t parts_of_one_write(std::span<const OctetCudaPart> parts) {
  int64_t n_bytes = 0;
  size_t n = 0;
  while (n < parts.size() && n < kParts && n_bytes + parts[n].bytes <= kBytes)
    n_bytes += parts[n++].bytes;
  return n;
}

void launch_write_parts(std::span<const OctetCudaPart> parts, cudaStream_t stream) {
  Payload payload{};
  int at = 0;
  for (const OctetCudaPart& part : parts) {
    std::memcpy(payload.bytes + at, part.from, static_cast<size_t>(part.bytes));
    at += static_cast<int>(part.bytes);
    payload.to[payload.n] = static_cast<uint8_t*>(part.to);
    payload.end[payload.n++] = at;
  }
  write_parts<<<1, kThreads, 0, stream>>>(payload);
  check_launch("writing inputs");
}

}  // namespace octet::cuda
