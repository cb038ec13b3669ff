// Rules of parameters' updates, with what these need to know from a Logical training graph.
#pragma once

#include "ir/graph.h"
#include "optim/optimizer.h"

namespace octet {

// Each line of `rules` becomes one for each parameter that it names, with the parameter's name as
// the pattern; `in_out` is of the linears' weights that lie as [inputs, outputs] (GPT-2's).
// A line names parameters by their names, or by those of their module, as lora.targets does: the
// path, its last part, or the linear's short name "layers.3.q_proj"; of a module a line of muon
// means the matrices. Adapters go by the module that they stand beside. Idempotent.
// Throws Error{invalid_argument} naming a pattern that matches no parameter that is trained.
OptimPolicy for_parameters(OptimPolicy policy, const Graph& logical);

}  // namespace octet
