#include "backends/cuda/kernels/move/fill_nan.h"

#include <algorithm>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {
namespace {

constexpr int kThreads = 256, kMaxBlocks = 1024;
constexpr uint16_t kNan = 0x7FC0;  // of bf16 and fp16, and two of them of f32

struct Ranges {
  uint16_t* to[OCTET_CUDA_MAX_RANGES];
  int64_t words[OCTET_CUDA_MAX_RANGES];
  int n;
};

// Blocks that find no flag end at once, so that a step without NaN pays for a launch alone.
__global__ void __launch_bounds__(kThreads)
    fill_nan_where(const uint8_t* flag, const __grid_constant__ Ranges ranges) {
  if (*flag == 0) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int range = 0; range < ranges.n; ++range) {
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
         i < ranges.words[range]; i += stride)
      ranges.to[range][i] = kNan;
  }
}

}  // namespace

void launch_fill_nan_where(const uint8_t* flag, std::span<const OctetCudaRange> ranges,
                           cudaStream_t stream) {
  if (ranges.size() > OCTET_CUDA_MAX_RANGES)
    throw ModuleError("[cuda] expected at most " + std::to_string(OCTET_CUDA_MAX_RANGES) +
                      " ranges, got " + std::to_string(ranges.size()));
  Ranges all{};
  int64_t most = 0;
  for (const OctetCudaRange& range : ranges) {
    all.to[all.n] = static_cast<uint16_t*>(range.address);
    all.words[all.n] = range.bytes / 2;
    most = std::max(most, all.words[all.n++]);
  }
  if (most == 0) return;
  const int64_t blocks = std::min<int64_t>((most + kThreads - 1) / kThreads, kMaxBlocks);
  fill_nan_where<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(flag, all);
  check_launch("filling with NaN");
}

}  // namespace octet::cuda
