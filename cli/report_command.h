// octet report.
#pragma once

#include "cli/common.h"

namespace octet {

void add_report_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
