// Launches of a GEMM, by its row (GemmKind): pure functions of the parameters.
#pragma once

#include "backends/cuda/params/gemm.h"
#include "backends/cuda/target/choose/kernel_names.h"

namespace octet::cuda {

// Launches of the library: "cublasLt", which chooses among its own. Empty for GEMMs over nothing.
KernelNames launches_of(const GemmParams& p);

}  // namespace octet::cuda
