// Model spec in the metadata of a GGUF file. Each key of the model is read, must have the value
// that a model has without it, or is refused by name.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/gguf.h"
#include "base/log.h"
#include "nn/spec.h"

namespace octet {

// `divisors`: of rope_freqs.weight; empty where the file has none. Throws Error{bad_data}, "[gguf]
// PATH: expected ...", for other architectures, for what a model of ours has not (yarn), and where
// the file's tensors or tokens are not those of this shape.
ModelSpec gguf_spec(const GgufHeader& header, std::span<const float> divisors);

// Throws for a key that changes the model, unread. A key of nobody's is a warning.
void check_gguf_keys(const GgufHeader& header, const Log& log);

// Keys that change nothing, and how those begin that say what a file is ("general."). A row of
// docs/results/neutral_keys.csv proves it, of a beginning for some that begin so.
std::vector<std::string_view> neutral_gguf_keys();

}  // namespace octet
