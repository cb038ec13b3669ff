// What `octet bench` is told.
#pragma once

#include <optional>
#include <string>

#include "cli/bench_ranks.h"
#include "passes/precision/store_frozen.h"

namespace octet {

struct BenchFlags {
  std::string what;  // empty: kernels, step and optimizer
  std::string config;
  std::string recipes;  // with commas
  int rounds = 5;
  int64_t params = int64_t{1} << 24;
  int64_t documents = 0;
  bool by_kernel = false;
  int64_t texts = 1, context = 128;  // of decode
  FrozenFormat weights = FrozenFormat::as_computed;
  int ranks = 0;        // of step: 0: one, by itself; of links: 0: two
  int64_t largest = 0;  // MiB, of links; 0: 64, of GPUs 256
  RankKind kind = RankKind::threads;
  double loss = 0;                       // of record: validation loss to reach
  int64_t every = 25;                    // of record: steps between two evaluations
  std::string csv;                       // of record
  std::string ceilings;                  // a file of them; empty: by default
  std::optional<int> device_index = {};  // of this rank
};

void add_bench_flags(CLI::App& bench, BenchFlags& flags);
// Throws Error{invalid_argument} for a flag that is given and would change nothing.
void expect_bench_use(const CLI::App& bench, const BenchFlags& flags);

}  // namespace octet
