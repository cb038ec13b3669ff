// octet plan CONFIG: what a run will do and take, without running it.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_plan_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
