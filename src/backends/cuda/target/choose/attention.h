// Which form of its kernels attention launches: pure functions of the parameters.
#pragma once

#include "backends/cuda/kernel_id.h"
#include "backends/cuda/params/attention.h"
#include "backends/cuda/target/choose/kernel_names.h"

namespace octet::cuda {

void choose_kernels(AttentionParams& p);
KernelNames launches_of(KernelId kernel, const AttentionParams& p);

}  // namespace octet::cuda
