// AdamW steps by the formats of their states.
#pragma once

#include "bench/machine.h"

namespace octet {

// First "memcpy" in GB/s; then each row one update of n_params parameters, in G parameters/s;
// ratio: against f32 weights and states, whose gradients are f32 too (the others' are bf16); floor:
// the rate at which memcpy would move the same bytes (28 a parameter for f32), share = value /
// floor, which may be above 1: an update in place is kinder to memory than a copy. Formats that
// cannot be had on this machine are left out with a warning.
BenchRows bench_optimizer(const BenchMachine& machine, int64_t n_params);

}  // namespace octet
