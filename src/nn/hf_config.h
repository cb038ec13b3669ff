// A Hugging Face model folder's config.json, read and written from the table of fields
// (nn/fields.h) and each model's keys (ModelDef).
//
// Keys that a model lists are read in either spelling; keys that would change it (biases, another
// activation) are refused by name unless they are neutral; all others are about training,
// generation and software, and ignored.
#pragma once

#include <string>

#include "base/files.h"
#include "nn/spec.h"

namespace octet {

// Resolved. Throws Error{bad_data} with the file and the key. `where` stands in messages.
ModelSpec parse_hf_config(const std::string& text, const std::string& where);
ModelSpec read_hf_config(const Files& files, const std::string& model_folder);

// What parse_hf_config reads back, so that other programs can load a run's weights.
std::string hf_config_text(const ModelSpec& spec);

}  // namespace octet
