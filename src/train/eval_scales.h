// Options of a run's recipe, and scales of edges of a model that runs forward with a recipe that
// predicts them, beside the prediction from its weights' RMS (infer/loaded_rms.h).
#pragma once

#include "base/files.h"
#include "base/log.h"
#include "data/rows.h"
#include "infer/inference.h"
#include "infer/model_source.h"

namespace octet {

// The source's options with what the run's recipe.* keys say of a forward pass (overrides, scaling,
// compute, activations, blocks), where `recipe` is the run's own: the numerics of its own
// evaluations. Of edge scales take_run_scales() knows.
RecipeOptions forward_options(const ModelSource& source, const std::string& recipe);

// Scales that the run itself has, with what it predicts from: the same scales as its own
// evaluations. Nothing where the source is no run that was calibrated, or another recipe is asked
// for; where the model that it began with is gone, a warning.
void take_run_scales(const Files& files, ModelSource& source, const std::string& recipe,
                     const Log& log);

// Measured: forward passes on these rows, after each of which every edge that saturates, is flushed
// or has left its window is rescaled (AlarmRule::before_first_step), until none is. The same bits
// whenever it is called.
void measure_edge_scales(ModelSource& source, const Batch& rows, const TextMachine& machine);

}  // namespace octet
