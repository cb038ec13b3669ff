// Fields of a spec that its kind does not have: a builder shared with other kinds would read them,
// and no config.json of the kind could say them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "nn/fields.h"
#include "nn/shape.h"

namespace octet {

// True if a model of the spec's kind has the field with this or another head or scaling of
// positions; and the names of the kinds of which that is so.
bool kind_has(const ModelField& field, const ModelSpec& spec);
std::vector<std::string_view> kinds_with(const ModelField& field);

// True if the field has the value that it has where nobody gives it one, filled in or not. The spec
// must be without fault (fault_of).
bool is_default(const ModelField& field, const ModelSpec& spec);

// The first field that is not at its default and that no model of the spec's kind has. None are
// fields of the run, and those by which run files describe any model (hidden, layers, heads,
// kv_heads, ffn, vocab, rope_theta, tied): builders of kinds without them read none of these.
std::optional<ModelFault> fault_of_other_kinds(const ModelSpec& spec);

}  // namespace octet
