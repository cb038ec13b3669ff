// Choices made against a byte budget.
#pragma once

#include <cstdint>

#include "compile/program.h"

namespace octet {

// The options as they are where their program's planned bytes (training functions and evaluate)
// are at most options.memory_budget. Else, where options.recompute is absent, the first of
// these that fits: recompute cheap, the head in chunks too, recompute full with the head in chunks.
// Throws Error(device) where none does, naming the three largest roles of the smallest plan and the
// largest batch that fits. Plans only; runs nothing.
ProgramOptions fit_to_budget(const ProgramOptions& options, const Catalogue& catalogue);

}  // namespace octet
