// The model that a run starts from: its weights, and its config.json.
#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "train/engine.h"
#include "train/trainer.h"

namespace octet {

// Writes the weights of model.path, or first values, into the engine's memory. Returns how fast
// they came from files, and which parameters of the head that model.head names are new, since the
// folder has none of this shape; "" without model.path. Throws Error{invalid_argument} where a run
// of adapters would not train such a head.
std::string set_first_weights(TrainEngine& engine, const TrainerMachine& machine,
                              const RunConfig& config, const ModelSpec& spec);

// The text of the run's config.json: the folder's own, but for a head of its own and the names of
// classes, or that of a new model.
std::string model_description(const Files& files, const RunConfig& config, const ModelSpec& spec,
                              const std::vector<std::string>& label_names);

}  // namespace octet
