// The first weights of a run that trains adapters: its base as it is kept, and the adapters.
#pragma once

#include <cstdint>

#include "infer/weights.h"
#include "passes/lora.h"
#include "passes/precision/store_frozen.h"
#include "runtime/executor.h"

namespace octet {

struct AdaptedModel {
  ModelSpec spec;
  LoraOptions lora;
  FrozenFormat frozen = FrozenFormat::as_computed;
  uint32_t seed = 1;
};

// Zeroes all states and writes
//   the base   rounded to nearest in the type of its slot, or as data and scales (frozen_weight.h)
//   A          uniform in [-1 / sqrt(in), 1 / sqrt(in)), keyed by its name and the seed: PEFT's
//              Kaiming-uniform with a = sqrt(5)
//   B          zeros
//   a head     that the base lacks: initial_values (train/weights.h)
// Throws Error{bad_data} where a weight that becomes eight bits is not finite.
void set_adapted_weights(Arenas& arenas, const Layout& layout, const WeightReader& base,
                         const AdaptedModel& model);

}  // namespace octet
