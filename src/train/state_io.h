// The persistent slots of a program as tensors of a checkpoint, by name and dtype, and back.
//
// model.safetensors holds the weights that forward and backward compute with, under their Hugging
// Face names, so that other programs can load them; optim.safetensors holds every state (masters or
// their remainders, moments), so that the two together restore every bit.
#pragma once

#include <vector>

#include "io/safetensors.h"
#include "runtime/executor.h"

namespace octet {

// Sorted by name; the sources read the arenas when they are written.
std::vector<TensorSource> slot_sources(Arenas& arenas, const Layout& layout, InputKind kind);

// Throws Error{bad_data} where a slot has no tensor, or one of another dtype or shape.
void restore_slots(Arenas& arenas, const Layout& layout, InputKind kind,
                   const SafetensorsReader& reader);

}  // namespace octet
