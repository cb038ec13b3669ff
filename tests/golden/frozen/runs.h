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

// Of kernels that a CPU's vectors fill, and of those that a GPU's tensor cores take.
enum class Size { tiny, small };

std::vector<Run> runs(Size size);

}  // namespace octet::frozen
