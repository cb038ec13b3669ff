// Launches of the gated delta rule: they have no choice.
#pragma once

#include "backends/cuda/kernel_id.h"
#include "backends/cuda/target/choose/kernel_names.h"

namespace octet::cuda {

inline KernelNames delta_launches(KernelId kernel) {
  if (kernel == KernelId::gated_delta_step) return {"delta_step"};
  if (kernel == KernelId::gated_delta) return {"delta_chunks", "delta_scan"};
  return {"delta_chunks", "delta_scan", "delta_back", "delta_gradients", "delta_rows"};
}

}  // namespace octet::cuda
