// The CUDA back end: a GPU, and the catalogue of its kernels.
#pragma once

#include <string>

#include "plan/backend.h"

namespace octet::cuda {

struct BackendOptions {
  std::string module;  // path of the library
  int device = 0;
  bool deterministic = false;  // plans reserve more scratch: see params/attention.h
  int n_threads = 0;           // of the host; 0: every core that the process may use
  std::string nccl = {};       // file of NCCL's library; empty: libnccl.so.2
};

// Throws Error{device}: no module, no GPU, or one that is too old or that
// the module was not built for.
Backend make_backend(const BackendOptions& options);

// A back end to plan with: no module, no GPU. Its device has no memory to give.
struct PlanBackendOptions {
  bool deterministic = false;
  int n_threads = 0;
  int capability = 90;  // of the GPU that is planned for: 10 major + minor
};
Backend make_plan_backend(const PlanBackendOptions& options);

}  // namespace octet::cuda
