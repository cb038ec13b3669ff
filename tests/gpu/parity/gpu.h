// The GPU back end of the tests.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/backend.h"
#include "base/error.h"
#include "gpu/parity/watched_launches.h"

namespace octet {

// nullptr where there is no module or no GPU; `why` then says which.
inline Backend* gpu_backend(std::string& why) {
  static std::string reason;
  static const std::unique_ptr<Backend> backend = [] {
    try {
      auto made =
          std::make_unique<Backend>(cuda::make_backend({.module = gpu_module(), .n_threads = 4}));
      if (is_emulated())
        made->catalogue = std::make_unique<WatchedCatalogue>(std::move(made->catalogue));
      return made;
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
