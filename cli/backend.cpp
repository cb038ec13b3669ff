#include "cli/backend.h"

#include <filesystem>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/cores.h"
#include "base/error.h"

namespace octet {
namespace {

Backend open_cpu(const GlobalOptions& options) {
  const cpu::Isa isa =
      options.isa == "auto" ? cpu::detect_isa() : cpu::isa_from_name(options.isa).value();
  return cpu::make_backend(options.threads, isa);
}

// A limit of memory or of processes costs time, not the run.
Backend with_its_threads(Backend backend, const GlobalOptions& options) {
  const int wanted = options.threads > 0 ? options.threads : usable_cores();
  const int made = backend.pool->n_threads();
  if (made < wanted) {
    make_log(options).warning("[threads] expected {}, the system made {}: goes on with these",
                              wanted, made);
  }
  return backend;
}

}  // namespace

std::string cuda_module_path() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto beside = folder / "liboctet_cuda.so";
  return std::filesystem::exists(beside, error) ? beside : folder / "cuda" / "liboctet_cuda.so";
}

Backend open_backend(const GlobalOptions& options, const KernelNeeds& needs) {
  if (options.device == "cpu") return with_its_threads(open_cpu(options), options);
  return with_its_threads(cuda::make_backend({.module = cuda_module_path(),
                                              .deterministic = needs.deterministic,
                                              .n_threads = options.threads}),
                          options);
}

Backend open_plan_backend(const GlobalOptions& options, const KernelNeeds& needs) {
  if (options.device == "cpu") return with_its_threads(open_cpu(options), options);
  return with_its_threads(
      cuda::make_plan_backend({.deterministic = needs.deterministic, .n_threads = options.threads}),
      options);
}

}  // namespace octet
