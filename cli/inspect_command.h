// octet inspect RUN|FILE: what a checkpoint or a file of tensors holds.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_inspect_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
