// The back end that --device, --isa and --threads ask for.
#pragma once

#include "backends/cpu/backend.h"
#include "cli/common.h"

namespace octet {

// Throws Error{device} for a device that is not there, Error{invalid_argument} for instructions
// that the machine lacks. Call once in a process.
cpu::Backend open_backend(const GlobalOptions& options);

}  // namespace octet
