// Copies between strided arrangements of elements of 1, 2 or 4 bytes: slice, pad, concatenate,
// transpose and broadcast are each one of these (or a few). Bits are moved as they are.
// Deterministic; source and destination must not overlap.
#pragma once

#include <vector>

#include "backends/cpu/common/operand.h"

namespace octet::cpu {

// dst[dst_start + sum_k i_k dst_stride[k]] = src[src_start + sum_k i_k src_stride[k]] for every
// index i below `extent`. Strides and starts count elements; a source stride of 0 repeats.
struct StridedCopy {
  int64_t src_start = 0, dst_start = 0;
  std::vector<int64_t> extent = {}, src_stride = {}, dst_stride = {};
};

// The same copy with axes of extent 1 dropped and neighbours joined where both sides allow; at
// least one axis stays, and the last is the one along which the destination is closest.
StridedCopy simplified(const StridedCopy& copy);

// Takes a simplified copy. `bytes` per element: 1, 2 or 4; anything else throws invalid_argument.
void copy_strided(const StridedCopy& copy, const void* src, void* dst, int64_t bytes,
                  ThreadPool& pool);

// n elements of `bytes` bytes, each as at `element`.
struct Repeat {
  const void* element = nullptr;
  int64_t bytes = 4;
};
void fill_elements(void* dst, int64_t n, const Repeat& repeat, ThreadPool& pool);

}  // namespace octet::cpu
