// `octet bench load`: loading a GGUF file beside reading and decoding its bytes.
#pragma once

#include <string>
#include <vector>

#include "bench/bench_row.h"
#include "cli/common.h"

namespace octet {

struct LoadFlags {
  std::string file;
  std::vector<std::string> recipes;  // none: fp32 and bf16
  int rounds = 5;
};

// Rows of bench_load() of each recipe. Throws Error{invalid_argument} for another file.
BenchRows run_bench_load(const LoadFlags& flags, const GlobalOptions& options);

}  // namespace octet
