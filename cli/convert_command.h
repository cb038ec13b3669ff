// octet convert FROM TO: a run or a model folder as transformers and inference servers load it.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_convert_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
