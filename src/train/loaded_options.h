// program_options of a run as it starts: with the RMS of the weights that it loads, where its
// recipe predicts scales from them (recipe.weight_rms).
#pragma once

#include "base/files.h"
#include "train/run_setup.h"

namespace octet {

// Reads the weights of model.path, where they are there; a folder of config.json alone can be
// planned without.
ProgramOptions loaded_options(const Files& files, const RunConfig& config, const ModelSpec& spec,
                              int64_t rank = 0);

}  // namespace octet
