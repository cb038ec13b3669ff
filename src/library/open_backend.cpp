#include "library/open_backend.h"

#include <filesystem>

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/cores.h"
#include "base/error.h"
#include "library/program_files.h"

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
  backend.catalogue->set_arithmetic(request.arithmetic);
  const int wanted = request.threads > 0 ? request.threads : usable_cores();
  const int made = backend.pool->n_threads();
  if (made < wanted) {
    log.warning("[threads] expected {}, the system made {}: goes on with these", wanted, made);
  }
  return backend;
}

// The first of these that is there, else where `usual` would be; empty where nothing says.
std::string module_path(std::initializer_list<const char*> paths, const char* usual) {
  std::string found = beside_program(paths);
  if (!found.empty()) return found;
  const std::filesystem::path folder = program_folder();
  return folder.is_absolute() ? (folder / usual).string() : "";
}

std::string module_of(const BackendRequest& request) {
  std::string module = request.cuda_module.empty() ? cuda_module_path() : request.cuda_module;
  if (!module.empty()) return module;
  throw Error(ErrorCode::device,
              "[cuda] expected to find the CUDA module beside the program, but the system does "
              "not say where that is: /proc is not mounted");
}

}  // namespace

std::string cuda_module_path() {
  return module_path({"liboctet_cuda.so", "cuda/liboctet_cuda.so", "octet/liboctet_cuda.so",
                      "../lib/octet/liboctet_cuda.so"},
                     "cuda/liboctet_cuda.so");
}

std::string mpi_module_path() {
  return module_path({"liboctet_mpi.so", "octet/liboctet_mpi.so", "../lib/octet/liboctet_mpi.so"},
                     "liboctet_mpi.so");
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

std::optional<Backend> audit_backend(Catalogue& catalogue, int64_t every) {
  const Target& target = catalogue.target();
  const int wanted = capability_of(Arithmetic::hopper);
  const bool has_rule = target.capability == wanted || target.arithmetic == Arithmetic::hopper;
  if (every == 0 || !has_rule) return std::nullopt;
  catalogue.set_arithmetic(
      Arithmetic::hopper);  // of a card, algorithms that add otherwise are left
  Backend cpu = cpu::make_backend(1, cpu::detect_isa());
  cpu.catalogue->set_arithmetic(Arithmetic::hopper);
  return cpu;
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
