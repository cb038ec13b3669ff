// octet data inspect: what a run would be trained on.
#pragma once

#include "cli/common.h"

namespace octet {

void add_data_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
