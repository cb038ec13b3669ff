// What the folder that a run starts from calls the classes of its texts or pictures.
#pragma once

#include <string>
#include <vector>

#include "base/files.h"
#include "config/run_config.h"
#include "nn/spec.h"

namespace octet {

// By number, as id2label of the config.json of model.path has them; empty where it has others than
// the model's, or none.
std::vector<std::string> names_of_model(const Files& files, const RunConfig& config,
                                        const ModelSpec& spec);

}  // namespace octet
