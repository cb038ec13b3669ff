#include "library/open_backend.h"

#include <sys/auxv.h>

#include <filesystem>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/cores.h"
#include "base/error.h"

namespace octet {
namespace {

cpu::Isa isa_from_request(const BackendRequest& request) {
  if (request.isa == "auto") return cpu::detect_isa();
  if (const auto isa = cpu::isa_from_name(request.isa)) return *isa;
  throw Error(ErrorCode::invalid_argument,
              "[isa] expected auto, scalar, avx2, avx512 or amx, got {}", request.isa);
}

void check_device(const BackendRequest& request) {
  if (request.device == "cpu" || request.device == "cuda") return;
  throw Error(ErrorCode::invalid_argument, "[device] expected cpu or cuda, got {}", request.device);
}

Backend open_cpu(const BackendRequest& request) {
  return cpu::make_backend(request.threads, isa_from_request(request), request.rows, request.group);
}

// For its ranks, and its threads: a limit of memory or of processes costs time, not the run.
Backend as_asked(Backend backend, const BackendRequest& request, const Log& log) {
  backend.catalogue->set_ranks(request.ranks);
  const int wanted = request.threads > 0 ? request.threads : usable_cores();
  const int made = backend.pool->n_threads();
  if (made < wanted) {
    log.warning("[threads] expected {}, the system made {}: goes on with these", wanted, made);
  }
  return backend;
}

std::string module_of(const BackendRequest& request) {
  const std::string module = request.cuda_module.empty() ? cuda_module_path() : request.cuda_module;
  if (!module.empty()) return module;
  throw Error(ErrorCode::device,
              "[cuda] expected to find the CUDA module beside the program, but the system does "
              "not say where that is: /proc is not mounted");
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

Backend open_backend(const BackendRequest& request, const Log& log) {
  check_device(request);
  if (request.device == "cpu") return as_asked(open_cpu(request), request, log);
  return as_asked(cuda::make_backend({.module = module_of(request),
                                      .device = request.device_index,
                                      .deterministic = request.deterministic,
                                      .n_threads = request.threads,
                                      .nccl = request.nccl}),
                  request, log);
}

Backend open_plan_backend(const BackendRequest& request, const Log& log) {
  check_device(request);
  if (request.device == "cpu") return as_asked(open_cpu(request), request, log);
  return as_asked(cuda::make_plan_backend(
                      {.deterministic = request.deterministic, .n_threads = request.threads}),
                  request, log);
}

std::string isa_of(const BackendRequest& request) {
  if (request.device != "cpu") return "";
  return std::string(cpu::isa_name(isa_from_request(request)));
}

BackendRequest resumed_request(BackendRequest request, const std::string& recorded_isa,
                               const Log& log) {
  if (request.device != "cpu" || request.isa != "auto") return request;
  const auto recorded = cpu::isa_from_name(recorded_isa);
  if (!recorded || *recorded == cpu::detect_isa()) return request;
  if (*recorded > cpu::detect_isa()) {
    log.warning(
        "the checkpoint was computed with --isa {}, which this machine lacks: runs that move "
        "between machines keep their bits with --isa {} from the beginning",
        cpu::isa_name(*recorded), cpu::isa_name(cpu::detect_isa()));
    return request;
  }
  request.isa = cpu::isa_name(*recorded);
  log.info("computing with --isa {} as the checkpoint did (this machine has {}, with other bits)",
           request.isa, cpu::isa_name(cpu::detect_isa()));
  return request;
}

}  // namespace octet
