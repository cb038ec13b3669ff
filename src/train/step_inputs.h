// Inputs that a call of a training function reads besides its batch.
#pragma once

#include <vector>

#include "base/philox.h"
#include "compile/options.h"
#include "data/rows.h"
#include "infer/batch_inputs.h"

namespace octet {

// The items of a loss, of what rows have; its samples are rows that belong together.
int64_t n_items(const ItemCounts& items, const LossTerm& loss);

// inv_n of each loss: 1 / the items that it counts, of all micro-batches and ranks; 0 of none.
std::vector<InputBytes> step_scalars(const ProgramOptions& options, const ItemCounts& items);

// Adds the masks of adapters' inputs; random words are counted by element.
void add_dropout(const Graph& graph, const ProgramOptions& options, const RandomStream& step,
                 std::vector<InputBytes>& inputs);

// Where the graph rounds gradients stochastically: what their words are drawn by, beside a name
// and an element (kRoundingDraw).
void add_rounding_draw(const Graph& graph, const RandomStream& step,
                       std::vector<InputBytes>& inputs);

}  // namespace octet
