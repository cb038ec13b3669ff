// Flags of commands that read a model: which, and what is to happen with keys of its config.json
// that nobody knows, and with weights that are NaN or Inf.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "infer/model_source.h"

namespace octet {

struct ModelFlags {
  std::string model, tokenizer, adapter;
  bool strict = false, allow_nonfinite = false;
};

// --model, --adapter, --tokenizer and --strict.
void add_model_flags(CLI::App& command, ModelFlags& flags);
void add_adapter_flag(CLI::App& command, std::string& adapter);
void add_strict_flag(CLI::App& command, bool& strict);
void add_nonfinite_flag(CLI::App& command, bool& allow_nonfinite);

UnknownKeys unknown_keys(bool strict);

// Throws Error{invalid_argument} of --strict beside a GGUF file, which has no config.json.
void expect_keys_to_know(const std::string& model, bool strict);

// The model, with the tokenizer that a flag names in place of its own. Throws as
// find_model_source().
ModelSource open_model_source(const ModelFlags& flags, const Log& log);

// Throws Error{invalid_argument} where the source has no tokenizer.
void expect_tokenizer(const ModelSource& source);

}  // namespace octet
