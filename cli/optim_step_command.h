// octet optim-step: AdamW updates of one tensor from raw f32 files, to look at optimizer states.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_optim_step_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
