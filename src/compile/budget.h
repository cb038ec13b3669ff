// Choices made against a byte budget, and the three lines that say what does not fit and what to
// change. Plans only; runs and allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "compile/program.h"

namespace octet {

// The program of the options as they are where its planned bytes (training functions and evaluate)
// are at most options.memory_budget. Else, where options.recompute is absent, of the first of
// these that fits: recompute cheap, the head in chunks too, recompute full of as few layers as need
// be with the head in chunks. What was planned to find it stays compiled; without a budget that is
// nothing. Where none fits, the one of fewest bytes.
std::unique_ptr<Program> nearest_to_budget(const ProgramOptions& options,
                                           const Catalogue& catalogue);
// The same. Throws as expect_fits does where none fits.
std::unique_ptr<Program> fit_to_budget(const ProgramOptions& options, const Catalogue& catalogue);

// Memory that a plan must fit into, and what sets the limit, in words: "train.memory_budget",
// "available on cpu (amx)".
struct MemoryLimit {
  int64_t bytes = 0;
  std::string what;
};

// Throws Error(device) where the planned bytes of a training program exceed the limit. Its three
// lines: what is planned and what there is; the three largest roles; at most three settings that
// fit (compile/memory_advice.h).
void expect_fits(Program& program, const Catalogue& catalogue, const MemoryLimit& limit);

// "activations 1.5 GiB, optimizer 300.0 MiB, masters 8.0 KiB": at the peak of a plan.
std::string largest_roles_text(const Plan& plan);

}  // namespace octet
