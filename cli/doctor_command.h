// octet doctor: what this machine offers, what is missing, and the command that would install it.
#pragma once

#include "cli/common.h"

namespace octet {

void add_doctor_command(CLI::App& app, GlobalOptions& options);

}  // namespace octet
