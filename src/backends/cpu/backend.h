// The CPU back end: a device, and the catalogue of its kernels.
#pragma once

#include "backends/cpu/common/isa.h"
#include "backends/cpu/gemm/tile_gemm.h"
#include "comm/group.h"
#include "plan/backend.h"

namespace octet::cpu {

using octet::Backend;

// n_threads 0: every core that the process may use. Isa::scalar runs the reference kernels only.
// Calls limit_isa. `group`: of ranks that run the same program, for its
// collectives; it must outlive the back end. nullptr: there are none.
Backend make_backend(int n_threads, Isa isa, RowSums rows = RowSums::library,
                     Group* group = nullptr);

}  // namespace octet::cpu
