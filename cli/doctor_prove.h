// octet doctor --prove CONFIG: the kernels of a run, each compared with the CPU's reference kernel
// on this machine.
#pragma once

#include <string>

#include "cli/common.h"

namespace octet {

// Prints a line a kernel. Throws what load_config, open_backend and prove_run throw.
void doctor_prove(const GlobalOptions& options, const std::string& config);

}  // namespace octet
