// Composers: a typed graph of the training step (forward, gradients, derived weights) becomes the
// graph of a function. Each is a pure function; functions.cpp puts them together.
#pragma once

#include "compile/options.h"

namespace octet {

enum class Accumulate : uint8_t { overwrite, add };

// Forward and backward of one micro-batch: each gradient becomes the next value of its parameter's
// accumulator, each next history that of its accumulated history, the quantizers' flag likewise.
Graph accumulate(const Graph& typed, Accumulate how);

// Forward, backward and the optimizer's update, then what is derived from the new parameters.
// Gradients live only until their update.
Graph append_update(const Graph& typed, const ProgramOptions& options);

// The update alone, from what accumulate gathered.
Graph update_from_accumulators(const Graph& typed, const ProgramOptions& options);

// What is derived from the parameters as they are.
Graph derive_weights(const Graph& typed);

// Without the output of this name, where there is one; what only it needs stays.
Graph without_output(const Graph& graph, std::string_view name);

}  // namespace octet
