// octet generate --model DIR|RUN --prompt TEXT: text from a model.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_generate_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
