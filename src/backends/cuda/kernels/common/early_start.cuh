// Kernels whose blocks become resident while the kernel before them still runs (programmatic
// dependent launch, compute capability 9.0): short kernels in a row, as a decoded token has them,
// then follow each other without the gap of a launch, and what is constant can be read ahead.
// launch_early starts such a kernel, which calls wait_for_previous before it touches anything that
// other kernels of the stream read or write. What is before it in the stream may be any kernel: it
// becomes resident when that one has called start_next or ended. As start_next comes behind
// wait_for_previous, everything but the kernel just before has ended by then.
// A kernel that shares nothing with the one before it may call start_next at once and
// wait_for_previous as its last act: its blocks then work where those of the other have ended.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

// All kernels before this one have ended, and what they wrote can be read.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Blocks of the next kernel may become resident from now on.
__device__ __forceinline__ void start_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Rows up to which row kernels are launched so: those of texts that are decoded side by side.
inline constexpr int64_t kMaxEarlyRows = 128;

inline bool has_early_start() {
  static const bool has = [] {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9;
  }();
  return has;
}

struct EarlyGrid {
  unsigned blocks, threads;
  size_t shared_bytes = 0;
};

// kernel<<<blocks, threads, shared_bytes, stream>>>(args), early where the device can.
template <typename... Params, typename... Args>
void launch_early(void (*kernel)(Params...), const EarlyGrid& grid, cudaStream_t stream,
                  const Args&... args) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.blocks);
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = has_early_start() ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, Params(args)...), "an early launch");
}

}  // namespace octet::cuda
