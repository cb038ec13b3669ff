// The small runs whose bits, names and bytes are frozen: every recipe with every model, summing
// gradients over one micro-batch and over three, and what a configuration can choose besides.
#pragma once

#include <string>
#include <vector>

#include "compile/program.h"
#include "nn/model.h"

namespace octet::frozen {

struct Run {
  std::string name;  // "llama coat x3"
  ModelSpec spec;
  ProgramOptions program;
};

// Sizes of kernels that a CPU's vectors fill, and of those that a GPU's tensor cores take.
enum class Size { tiny, small };

// Recipes that store activations read them in the forward pass, as before recipe.forward_reads.
std::vector<Run> runs(Size size);

// The same recipes at the key's default.
std::vector<Run> runs_of_unquantized_reads(Size size);

}  // namespace octet::frozen
