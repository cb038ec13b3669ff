// octet opt FILE.ir --passes a,b: graph text in, graph text out.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_opt_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
