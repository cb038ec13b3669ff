// octet bench [layer|step|kernels|optimizer] [CONFIG]: what this machine reaches, with what it is
// measured against.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/common.h"

namespace octet {

void add_bench_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
