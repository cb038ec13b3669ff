// Which model a configuration means.
#pragma once

#include "base/files.h"
#include "compile/program.h"
#include "config/run_config.h"
#include "nn/model.h"

namespace octet {

// A new model of the configuration's shape, or with model.path the one of that folder. A new model
// has model.seq rows where positions are learned.
ModelSpec model_from_config(const Files& files, const RunConfig& config);

// The model as the program's builder of forward graphs.
ForwardBuilder forward_builder(const ModelSpec& spec);

}  // namespace octet
