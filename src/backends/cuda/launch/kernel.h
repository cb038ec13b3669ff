// How a kernel of the module looks: prepared once for its parameters, then launched any number of
// times. One file a family in kernels/; module/table.cpp names them all.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include "backends/cuda/kernel_id.h"
#include "backends/cuda/module_api.h"

namespace octet::cuda {

struct Context;  // launch/context.h

// The arguments of one launch by slot: device addresses; nullptr for what is absent.
struct Launch {
  void* const* operands = nullptr;
  void* const* results = nullptr;
  void* scratch = nullptr;
  cudaStream_t stream = nullptr;
  int n_sm = 1;                      // Request::n_sm
  unsigned int* counters = nullptr;  // kCounters words of this kernel alone (launch/context.h)
  // Between ranks: the number of the run of collectives in its plan that it begins; whether it ends
  // one; the second launch, which computes.
  uint32_t begins_collective_group = 0;
  bool ends_collective_group = false, is_second_phase = false;

  template <typename T>
  const T* in(int slot) const {
    return static_cast<const T*>(operands[slot]);
  }
  template <typename T>
  T* out(int slot) const {
    return static_cast<T*>(results[slot]);
  }
};

inline constexpr int kMaxParts = OCTET_CUDA_MAX_JOINED;

class Prepared;
struct Joined {
  Prepared* kernel;
  Launch args;
};

class Prepared {
 public:
  virtual ~Prepared() = default;
  // Only launches; throws ModuleError.
  virtual void launch(const Launch& args) = 0;
  // At most kMaxParts launches that do not depend on each other, this kernel's the first; kernels
  // of few rows make them one (launch/join.h).
  virtual void launch_joined(std::span<const Joined> all) {
    for (const Joined& one : all) one.kernel->launch(one.args);
  }
  // Makes the chain of launches of which this kernel's is the last; false where it makes none:
  // nothing is launched.
  virtual bool launch_chain(std::span<const Joined> all) { return static_cast<void>(all), false; }
};

// Inputs that a kernel is prepared from.
struct Request {
  Context& context;
  int n_sm = 1;  // multiprocessors of the device
  std::span<const std::byte> params;
  int64_t scratch_bytes = 0;

  template <typename Params>
  Params get() const {
    if (params.size() < sizeof(Params)) throw std::length_error("[cuda] parameters are too short");
    Params result;
    std::memcpy(&result, params.data(), sizeof(Params));
    return result;
  }
  // Entry i of the list behind Params.
  template <typename Params>
  std::span<const int64_t> tail() const {
    return {reinterpret_cast<const int64_t*>(params.data() + sizeof(Params)),
            (params.size() - sizeof(Params)) / sizeof(int64_t)};
  }
};

using PrepareFn = std::unique_ptr<Prepared> (*)(const Request& request);

struct KernelEntry {
  KernelId kernel;
  PrepareFn prepare;
};

// For kernels that need nothing but their parameters: `run` launches.
template <typename Params, void (*run)(const Params&, const Launch&)>
std::unique_ptr<Prepared> stateless(const Request& request) {
  struct Stateless : Prepared {
    explicit Stateless(const Params& p) : params(p) {}
    void launch(const Launch& args) override { run(params, args); }
    Params params;
  };
  return std::make_unique<Stateless>(request.get<Params>());
}

class ModuleError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown while a kernel is prepared that its library or device does not have for these parameters.
class KernelUnavailable : public ModuleError {
 public:
  using ModuleError::ModuleError;
};

// Throws ModuleError naming `what` unless the call succeeded.
inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw ModuleError(std::string("[cuda] ") + what + ": " + cudaGetErrorString(status));
}
// After every <<<>>>: a launch's own error.
inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
}

// The lists of the folders of kernels/.
std::span<const KernelEntry> gemm_kernels();
std::span<const KernelEntry> attention_kernels();
std::span<const KernelEntry> gated_delta_kernels();
std::span<const KernelEntry> layer_kernels();
std::span<const KernelEntry> norm_grad_kernels();
std::span<const KernelEntry> batch_norm_kernels();
std::span<const KernelEntry> activation_grad_kernels();
std::span<const KernelEntry> grad_codes_kernels();
std::span<const KernelEntry> rope_kernels();
std::span<const KernelEntry> bias_kernels();
std::span<const KernelEntry> quantize_kernels();
std::span<const KernelEntry> loss_kernels();
std::span<const KernelEntry> adamw_kernels();
std::span<const KernelEntry> move_kernels();
std::span<const KernelEntry> draw_kernels();
std::span<const KernelEntry> reduce_kernels();
std::span<const KernelEntry> rank_kernels();

}  // namespace octet::cuda
