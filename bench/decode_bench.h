// One more token of several texts over a KV cache, as `octet generate` makes it.
#pragma once

#include "bench/machine.h"
#include "bench/step_bench.h"
#include "nn/model.h"
#include "passes/precision/store_frozen.h"

namespace octet {

struct DecodeCase {
  ModelSpec spec;
  std::string recipe = "bf16";
  FrozenFormat weights = FrozenFormat::as_computed;
  int64_t texts = 1;
  int64_t context = 128;  // tokens of each text that its cache holds, the new one too
  int rounds = 9;
};

// Random weights and cache. Two rows, medians of steps with the host's work:
//   "decode NAME"       tokens/s of all texts
//   "decode NAME time"  ms a step; floor: reading the weights and the cache once at the copy's rate
// and with KernelRows::yes one a kernel, "decode NAME: KERNEL": ms of one step, each launch timed
// by itself, with its floor.
BenchRows bench_decode(const BenchMachine& machine, const DecodeCase& what,
                       const Ceilings& ceilings, KernelRows kernel_rows = KernelRows::no);

// A row, "prefill NAME": tokens/s of `context` tokens of each text into the cache, without logits;
// baseline: the forward pass and loss of the same tokens without a cache.
BenchRow bench_prefill(const BenchMachine& machine, const DecodeCase& what);

}  // namespace octet
