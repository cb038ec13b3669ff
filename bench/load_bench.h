// Loading a model from a GGUF file, beside reading and decoding its bytes alone.
#pragma once

#include <functional>
#include <string>

#include "bench/machine.h"
#include "infer/model_source.h"

namespace octet {

struct LoadCase {
  std::string file;
  std::function<ModelSource()> open;  // of the file, its recipe set
  int rounds = 5;
};

// Two rows, medians of rounds in turn with the file in the system's cache: "load RECIPE", ms of the
// clock, and "load RECIPE: cpu", ms of processor time. A load takes the file's name to a model
// whose forward pass can run. Baseline and floor: all tensors of the file, read and decoded as f32
// by as many threads into new memory of the kind that a plan's is (of a GPU, of its host).
BenchRows bench_load(const BenchMachine& machine, const LoadCase& what);

}  // namespace octet
