// Composers: a typed graph of the training step (forward, gradients, derived weights) becomes the
// graph of a function. Each is a pure function; functions.cpp puts them together.
#pragma once

#include <string_view>

#include "compile/options.h"

namespace octet {

enum class Accumulate : uint8_t { overwrite, add };

// Forward and backward of one micro-batch: each gradient becomes the next value of its parameter's
// accumulator, each next history that of its accumulated history, the quantizers' flag likewise.
// Accumulators of gradients that are kept as data and scale are FP16 with a scale, one rank's.
Graph accumulate(const Graph& typed, Accumulate how, const ProgramOptions& options);

// Forward, backward and the optimizer's update, then what is derived from the new parameters.
// Gradients live only until their update. On one rank, those whose values are made of FP16 data or
// of codes and of a scale (passes/precision/store_gradients.h) live as these.
Graph append_update(const Graph& typed, const ProgramOptions& options);

// The update alone, from what accumulate gathered.
Graph update_from_accumulators(const Graph& typed, const ProgramOptions& options);

// Values derived from the parameters as they are.
Graph derive_weights(const Graph& typed);

// Logits of tokens that follow what a KV cache holds, size.cache positions a batch entry: attention
// whose keys are appended reads it, when this call's keys and values are written; what has its own
// stays. "positions" says where each token stands in its text. Padding behind a text stands where
// the text goes on, and is overwritten then, or (with rotary positions) at -1 and is dropped.
// Fixed keys, those of a source, have caches of their own, of as many rows as the source has: read
// as `encode` left them, and what made them goes; or written by this call too.
// Throws Error{invalid_argument} where the size has no cache or seq does not fit, and for attention
// whose keys no call would write: appended ones that are not causal.
enum class FixedKeys : uint8_t { read, written };
Graph with_cache(const Graph& typed, const BatchSize& size, FixedKeys fixed = FixedKeys::read);

// The caches of fixed keys alone, from the source. Throws Error{invalid_argument} where there are
// none.
Graph encode_source(const Graph& typed, const BatchSize& size);

// Without the output of this name, where there is one; what only it needs stays.
Graph without_output(const Graph& graph, std::string_view name);

}  // namespace octet
