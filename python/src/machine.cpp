#include "python/src/machine.h"

#include "backends/cpu/backend.h"
#include "backends/cuda/backend.h"
#include "base/error.h"

namespace octet::python {
namespace {

Backend open_cpu(const Machine& machine, cpu::RowSums rows) {
  const auto isa = machine.isa == "auto" ? cpu::detect_isa() : cpu::isa_from_name(machine.isa);
  if (!isa) {
    throw Error(ErrorCode::invalid_argument,
                "[isa] expected auto, scalar, avx2, avx512 or amx, got {}", machine.isa);
  }
  return cpu::make_backend(machine.threads, *isa, rows);
}

void check_device(const Machine& machine) {
  if (machine.device == "cpu" || machine.device == "cuda") return;
  throw Error(ErrorCode::invalid_argument, "[device] expected cpu or cuda, got {}", machine.device);
}

}  // namespace

Backend open(const Machine& machine, cpu::RowSums rows) {
  check_device(machine);
  if (machine.device == "cpu") return open_cpu(machine, rows);
  return cuda::make_backend({.module = machine.cuda_module, .n_threads = machine.threads});
}

Backend open_to_plan(const Machine& machine, bool deterministic) {
  check_device(machine);
  if (machine.device == "cpu") return open_cpu(machine, cpu::RowSums::library);
  return cuda::make_plan_backend({.deterministic = deterministic, .n_threads = machine.threads});
}

}  // namespace octet::python
