// The CPU back end: a device, and the catalogue of its kernels.
#pragma once

#include "backends/cpu/isa.h"
#include "plan/backend.h"

namespace octet::cpu {

using octet::Backend;

// n_threads 0: every core that the process may use. Isa::scalar runs the reference kernels only.
// Calls limit_isa.
Backend make_backend(int n_threads, Isa isa);

}  // namespace octet::cpu
