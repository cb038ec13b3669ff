#include "cli/backend.h"

#include <filesystem>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/error.h"

namespace octet {
namespace {

Backend open_cpu(const GlobalOptions& options) {
  const cpu::Isa isa =
      options.isa == "auto" ? cpu::detect_isa() : cpu::isa_from_name(options.isa).value();
  return cpu::make_backend(options.threads, isa);
}

}  // namespace

std::string cuda_module_path() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto beside = folder / "liboctet_cuda.so";
  return std::filesystem::exists(beside, error) ? beside : folder / "cuda" / "liboctet_cuda.so";
}

Backend open_backend(const GlobalOptions& options, const KernelNeeds& needs) {
  if (options.device == "cpu") return open_cpu(options);
  return cuda::make_backend({.module = cuda_module_path(),
                             .deterministic = needs.deterministic,
                             .n_threads = options.threads});
}

Backend open_plan_backend(const GlobalOptions& options, const KernelNeeds& needs) {
  if (options.device == "cpu") return open_cpu(options);
  return cuda::make_plan_backend(
      {.deterministic = needs.deterministic, .n_threads = options.threads});
}

}  // namespace octet
