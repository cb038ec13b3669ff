// `octet bench record`: seconds and joules to a validation loss, recipe by recipe.
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"

namespace octet {

struct RecordFlags {
  std::string config;  // empty: recipes/llama-124m.yaml
  std::vector<std::string> recipes;
  double loss = 0;  // 0: none is asked for
  int64_t every = 25;
  std::string csv;  // empty: none is written
};

// Prints a row a recipe; with `csv` the rows are added to that file too, behind those of others.
// Throws as bench_records() does, and Error{invalid_argument} without a loss.
void run_bench_record(const RecordFlags& flags, const GlobalOptions& options);

}  // namespace octet
