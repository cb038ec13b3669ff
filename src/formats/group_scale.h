// The largest scale of a group whose scales are BF16. Host and device.
#pragma once

#include "formats/bits.h"

namespace octet {

// With it, the largest f32 divided by it rounds to no more than the target 1 / inv_target, which
// still decodes to a finite f32: one that were rounded up would make infinity of it.
OCTET_HOST_DEVICE constexpr float largest_group_scale(float inv_target) {
  const float top = float_of(bits_of(float_of(kF32Inf - 1u) * inv_target) & 0xFFFF0000u);
  return top < 0x1.FEp127f ? top : 0x1.FEp127f;
}

}  // namespace octet
