// Launches of the step of AdamW, the gradients' norm and states.
#pragma once

#include <span>

#include "backends/cuda/params/update.h"
#include "backends/cuda/target/choose/kernel_names.h"

namespace octet::cuda {

void choose_kernels(AdamwStepParams& p);
KernelNames launches_of(const AdamwStepParams& p);

// list: elements and dtype of each gradient.
KernelNames norm_launches(std::span<const int64_t> list);
KernelNames load_launches(const StateParams& p);
KernelNames launches_of(const StoreScaledParams& p);

}  // namespace octet::cuda
