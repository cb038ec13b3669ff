// Which of the rows of the gated delta rule take what; equations and types: params/gated_delta.h.
#pragma once

#include "backends/cuda/params/gated_delta.h"

namespace octet::cuda {

// Most bytes of shared memory that a block has.
constexpr int64_t shared_bytes_of_block(int capability) {
  if (capability == 80 || capability == 87) return int64_t{163} << 10;
  const bool is_little = (capability > 80 && capability < 90) || capability >= 120;
  return is_little ? int64_t{99} << 10 : int64_t{227} << 10;
}

// A state goes on behind the operands: of such calls there are no gradients.
constexpr bool delta_takes(const GatedDeltaParams& p, int capability) {
  if (p.key_dim > kMaxDeltaDim) return false;
  const DeltaShared bytes = delta_shared(delta_keys(p.key_dim));
  const int64_t forward = std::max(bytes.chunks, bytes.scan);
  const int64_t most = p.has_state ? forward : std::max({forward, bytes.back, bytes.gradients});
  return most <= shared_bytes_of_block(capability);
}

// One token of each text behind a state.
constexpr bool is_delta_step(const GatedDeltaParams& p) {
  return p.has_state && p.seq == 1;
}

}  // namespace octet::cuda
