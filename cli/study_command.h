// octet study states RUN: what storing a run's moments in eight bits would cost.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_study_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
