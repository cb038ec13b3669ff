// The GPU back end of the tests.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "backends/cuda/backend.h"
#include "base/error.h"

namespace octet {

// OCTET_CUDA_MODULE names the library; by default it is where `make cuda` puts it.
inline std::string gpu_module() {
  const char* path = std::getenv("OCTET_CUDA_MODULE");
  return path == nullptr ? OCTET_SOURCE_DIR "/build/cuda/liboctet_cuda.so" : path;
}

// Whether its devices are those of tests/emulator.
inline bool is_emulated() {
  return gpu_module().find("emulated") != std::string::npos;
}

// nullptr where there is no module or no GPU; `why` then says which.
inline Backend* gpu_backend(std::string& why) {
  static std::string reason;
  static const std::unique_ptr<Backend> backend = [] {
    try {
      return std::make_unique<Backend>(
          cuda::make_backend({.module = gpu_module(), .n_threads = 4}));
    } catch (const Error& error) {
      reason = error.what();
      return std::unique_ptr<Backend>();
    }
  }();
  why = reason;
  return backend.get();
}

}  // namespace octet

// Inside a test: `gpu` is the back end, or the test skips and says why.
#define OCTET_GPU_OR_SKIP(gpu)               \
  std::string why_not;                       \
  Backend* const gpu = gpu_backend(why_not); \
  if (gpu == nullptr) GTEST_SKIP() << why_not
