// Flags of commands that read a model's folder: --strict, what is to happen with keys of its
// config.json that nobody knows; --allow-nonfinite, and with weights that are NaN or Inf.
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

inline void add_nonfinite_flag(CLI::App& command, bool& allow_nonfinite) {
  command.add_flag("--allow-nonfinite", allow_nonfinite,
                   "read weights that are NaN or Inf, which are refused without it");
}

}  // namespace octet
