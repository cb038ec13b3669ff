// Quantizing what a decoder layer's forward GEMMs read, by three sources of a tensor's scale.
#pragma once

#include "bench/machine.h"
#include "compile/options.h"
#include "nn/spec.h"

namespace octet {

// The inputs of q, k and v, of o, of gate and up, and of down, E4M3 codes by row with one scale:
//   just-in-time   from the amax of the tensor, which is read once more for it
//   group          from the maxima of groups of 16, which came with the tensor (COAT)
//   delayed        from the amaxes of 16 steps before; that of now joins them
// Rows "scaling OPERAND SOURCE" in ms with floors and ratios to just-in-time, and of all four
// "scaling layer SOURCE". Sources take turns. Throws Error{invalid_argument} for a model without
// such layers.
BenchRows bench_scaling(const BenchMachine& machine, const ProgramOptions& program,
                        const ModelSpec& spec, int rounds, const Ceilings& ceilings);

}  // namespace octet
