// Rates of single kernels: memory and large GEMMs, and every kernel of a training step.
#pragma once

#include "bench/machine.h"
#include "compile/program.h"

namespace octet {

// "memory" in GB/s read and written, and "gemm f32", "gemm bf16" of 2048^3 in GFLOP/s (ratio:
// against f32): the ceilings.
BenchRows ceiling_rows(const BenchMachine& machine, const Ceilings& ceilings);

// Every different launch (kernel, attributes and shapes) of the program's training step, alone:
// value in ms, floor by the ceilings, share = floor / value. Operands stay in the cache where they
// fit, so that a small kernel's share may be above 1.
BenchRows bench_step_kernels(const BenchMachine& machine, const ProgramOptions& program,
                             const Ceilings& ceilings);

}  // namespace octet
