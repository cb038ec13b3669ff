// Scales of weights in blocks, as kernels get them.
#pragma once

namespace octet::cuda {

// BF16 or f32 scales of weights [n, k] in blocks of 128 x 128, row-major; none where data is null.
struct BlockScales {
  const void* data = nullptr;
  bool is_f32 = false;
};

}  // namespace octet::cuda
