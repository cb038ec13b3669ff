// The list of commands.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_commands(CLI::App& app, GlobalOptions& options);

}  // namespace octet
