// First moments of an engine's states, for tests of training.
#pragma once

#include <vector>

#include "train/engine.h"

namespace octet::test {

// The first moments, f32, of all parameters: after one step the gradient times a constant.
inline std::vector<float> first_moments(TrainEngine& engine) {
  std::vector<float> all;
  for (const auto& [name, slot] : engine.layout().slots) {
    if (slot.key.use != StateUse::moment1) continue;
    std::vector<float> values(static_cast<size_t>(slot.type.n_bytes()) / sizeof(float));
    engine.arenas().device().copy_out(
        values.data(), engine.arenas().arena(slot.arena) + slot.offset, slot.type.n_bytes());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace octet::test
