// --strict: what is to happen with keys of a model's config.json that nobody knows.
#pragma once

#include <CLI/CLI.hpp>

#include "infer/model_source.h"

namespace octet {

inline void add_strict_flag(CLI::App& command, bool& strict) {
  command.add_flag("--strict", strict,
                   "a key of config.json that is not known is an error, not a warning");
}

inline UnknownKeys unknown_keys(bool strict) {
  return strict ? UnknownKeys::are_errors : UnknownKeys::are_warnings;
}

}  // namespace octet
