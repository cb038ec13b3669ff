// Training steps, recipe by recipe.
#pragma once

#include "bench/recipe_rounds.h"

namespace octet {

enum class KernelRows : uint8_t { no, yes };

// Rows of each recipe; times are medians:
//   "step NAME"            tokens/s, ratio to bf16
//   "step NAME work"       GFLOP/s of useful work; share: of the GEMM rate that its products reach
//   "step NAME time"       ms; floor: the sum of its launches' floors
//   "step NAME reference"  % of the time in reference kernels; at most 2 is asked for
//   "step NAME planned"    GiB of its plans
//   "step NAME in use"     GiB on a GPU as its driver counts; floor: the planned
//   "step NAME energy"     tokens/J by the machine's counter, where it has one (device/energy.h)
// and with KernelRows::yes one a kernel, "step NAME: KERNEL", of one step: ms with its floor.
BenchRows bench_steps(const BenchMachine& machine, const RecipeRounds& rounds,
                      const Ceilings& ceilings, KernelRows kernel_rows = KernelRows::no);

}  // namespace octet
