// Which model a configuration or a Hugging Face folder means.
#pragma once

#include <string>

#include "base/files.h"
#include "compile/program.h"
#include "config/run_config.h"
#include "io/hf_config.h"
#include "nn/model.h"

namespace octet {

// Throws Error{bad_data} naming the key where the family exists but this variant of it does not
// (biases in a Llama's projections, clip_qkv, another activation), or where a number is beyond the
// bounds of the configuration's key.
ModelSpec model_from_hf(const HfConfig& config, const std::string& where);

// A new model of the configuration's shape, or with model.path the one of that folder. A new model
// has model.seq rows where positions are learned.
ModelSpec model_from_config(const Files& files, const RunConfig& config);

// A config.json that model_from_hf reads back, so that other programs can load a run's weights.
std::string hf_config_text(const ModelSpec& spec);

// The model as the program's builder of forward graphs.
ForwardBuilder forward_builder(const ModelSpec& spec);

}  // namespace octet
