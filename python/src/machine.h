// The machine that a model computes on, by the names that users write.
#pragma once

#include <string>

#include "backends/cpu/tile_gemm.h"
#include "plan/backend.h"

namespace octet::python {

struct Machine {
  std::string device = "cpu", isa = "auto";
  int threads = 0;          // 0: one per core that this process may use
  std::string cuda_module;  // its path
};

// On the CPU `rows` is what products made from now on do: kernels that exist stay as they are.
// Throws Error{invalid_argument} for unknown names, Error{device} for what is not there.
Backend open(const Machine& machine, cpu::RowSums rows);
// To plan with: needs no device.
Backend open_to_plan(const Machine& machine, bool deterministic);

}  // namespace octet::python
