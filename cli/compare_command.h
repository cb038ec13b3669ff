// octet compare: the main job of `make train`; every recipe on one small model and the machine's
// own text.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_compare_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
