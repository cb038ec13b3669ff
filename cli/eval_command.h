// octet eval --model DIR|RUN --tasks ...: what a model makes of text.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_eval_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
