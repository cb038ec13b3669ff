// A model's weights, written into the slots of a program.
#pragma once

#include <span>
#include <vector>

#include "infer/weights.h"
#include "passes/precision/store_frozen.h"
#include "runtime/executor.h"

namespace octet {

// Values as a slot of this dtype holds them, f32, BF16 or FP16, rounded to nearest even.
std::vector<std::byte> encode_weights(std::span<const float> values, Dtype dtype);
// The same into `out`, which has their size.
void encode_weights(std::span<const float> values, Dtype dtype, std::span<std::byte> out);

// Every parameter of the model: rounded to nearest even in the type of its slot, or where the slot
// is of eight bits as data and scales of `format` (frozen_weight.h). In pieces, on the device's
// host threads, through memory of the host that it copies from at its best speed. Throws
// Error{bad_data} where a weight that becomes eight bits is not finite.
void load_weights(Arenas& arenas, const Layout& layout, const WeightReader& weights,
                  const ModelSpec& spec, FrozenFormat format);

}  // namespace octet
