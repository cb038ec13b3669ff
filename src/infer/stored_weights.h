// A model's weights, written into the slots of a program.
#pragma once

#include <span>
#include <vector>

#include "infer/tensor_streams.h"
#include "infer/weights.h"
#include "passes/precision/store_frozen.h"
#include "runtime/executor.h"

namespace octet {

// The f32 or FP16 master of a parameter, or its remainder; nullptr where the weight is all there
// is.
const Layout::Slot* find_master(const Layout& layout, const std::string& parameter);

// Writes f32 values, elements `first` on of a parameter, as its slots keep them:
//   f32 slot                            the values
//   bf16 slot, i16 "master:<name>"      split_master (math/adamw.h)
//   bf16 slot, f32 "master:<name>"      rounded to nearest even, and the values
//   bf16 slot alone                     rounded to nearest even
//   f16 "master:<name>"                 divided by the scale of optim/optimizer.h; values must be
//   whole
void write_master(Arenas& arenas, const Layout& layout, const std::string& parameter,
                  std::span<const float> values, int64_t first = 0);

// So every parameter, or where its slot is of eight bits as data and scales of `format`
// (matrix_quantizer.h). In pieces, on the device's host threads, through memory of the host that it
// copies from at its best speed. Throws Error{bad_data} where a weight that becomes eight bits is
// not finite.
void load_weights(Arenas& arenas, const Layout& layout,
                  const std::vector<ParameterSpec>& parameters, const WeightReader& weights,
                  FrozenFormat format);

}  // namespace octet
