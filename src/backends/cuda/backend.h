// The CUDA back end: a GPU, and the catalogue of its kernels.
#pragma once

#include <string>

#include "plan/backend.h"

namespace octet::cuda {

struct BackendOptions {
  std::string module;  // path of the library
  int device = 0;
  bool deterministic = false;
  int n_threads = 0;  // of the host; 0: every core that the process may use
};

// Throws Error{device}: no module, no GPU, or one that is too old.
Backend make_backend(const BackendOptions& options);

// A back end to plan with: no module, no GPU. Its device has no memory to give.
Backend make_plan_backend(int n_threads);

}  // namespace octet::cuda
