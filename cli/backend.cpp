#include "cli/backend.h"

#include <sys/auxv.h>

#include <filesystem>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/cores.h"
#include "base/error.h"

namespace octet {
namespace {

Backend open_cpu(const GlobalOptions& options, const KernelNeeds& needs, Group* group = nullptr) {
  const cpu::Isa isa =
      options.isa == "auto" ? cpu::detect_isa() : cpu::isa_from_name(options.isa).value();
  return cpu::make_backend(options.threads, isa,
                           needs.same_rows ? cpu::RowSums::same : cpu::RowSums::library, group);
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

// Without /proc, the name that the program was started by: the system took it from there, so that
// it leads to the program, if it leads anywhere.
std::filesystem::path program_path() {
  std::error_code error;
  const std::filesystem::path known = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return known;
  const auto* name = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  return name == nullptr ? std::filesystem::path() : std::filesystem::canonical(name, error);
}

}  // namespace

std::string cuda_module_path() {
  std::error_code error;
  const std::filesystem::path folder = program_path().parent_path();
  if (!folder.is_absolute()) return "";
  const auto beside = folder / "liboctet_cuda.so";
  return std::filesystem::exists(beside, error) ? beside : folder / "cuda" / "liboctet_cuda.so";
}

std::string mpi_module_path() {
  const std::filesystem::path folder = program_path().parent_path();
  return folder.is_absolute() ? folder / "liboctet_mpi.so" : std::filesystem::path();
}

Backend open_backend(const GlobalOptions& options, const KernelNeeds& needs, Group* group) {
  if (options.device == "cpu") return with_its_threads(open_cpu(options, needs, group), options);
  const std::string module = cuda_module_path();
  if (module.empty()) {
    throw Error(ErrorCode::device,
                "[cuda] expected to find the CUDA module beside the program, but the system does "
                "not say where that is: /proc is not mounted");
  }
  const int of_rank = group == nullptr ? 0 : group->rank();
  const int index = needs.device_index.value_or(of_rank);
  return with_its_threads(cuda::make_backend({.module = module,
                                              .device = index,
                                              .deterministic = needs.deterministic,
                                              .n_threads = options.threads}),
                          options);
}

Backend open_plan_backend(const GlobalOptions& options, const KernelNeeds& needs) {
  if (options.device == "cpu") return with_its_threads(open_cpu(options, needs), options);
  return with_its_threads(
      cuda::make_plan_backend({.deterministic = needs.deterministic, .n_threads = options.threads}),
      options);
}

}  // namespace octet
