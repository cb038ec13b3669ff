// A Hugging Face model folder's config.json, read and written from the table of fields
// (nn/fields.h) and each model's keys (ModelDef).
//
// Keys that a model lists are read in either spelling, transformers 4's and 5's; keys that would
// change it (another activation, code of its own) are refused by name unless they are neutral; a
// third list is of training, generation and software, and ignored (nn/hf_keys.h). A key of none of
// the three changes nothing here, and is told to whoever asks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "nn/spec.h"

namespace octet {

struct ModelDef;

struct HfConfig {
  ModelSpec spec;  // resolved
  // Keys of none of the three lists, in the order of the alphabet: "foo", "rope_scaling.foo".
  std::vector<std::string> unknown;
};

// Throws Error{bad_data} with the file and the key. `where` stands in messages.
HfConfig parse_hf_config_and_keys(const std::string& text, const std::string& where);
ModelSpec parse_hf_config(const std::string& text, const std::string& where);
ModelSpec read_hf_config(const Files& files, const std::string& model_folder);

// The keys of a model's file that change nothing, whatever they hold.
std::vector<std::string_view> passed_over_keys(const ModelDef& def);

// Text that parse_hf_config reads back, in both spellings, so that other programs can load a run's
// weights.
std::string hf_config_text(const ModelSpec& spec);

}  // namespace octet
