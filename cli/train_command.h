// octet train CONFIG [--resume]: a run from a configuration file.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_train_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
