// Instructions by which a warp multiplies on the tensor cores, m16n8k16.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/common/element.cuh"

namespace octet::cuda {

// c += a b. Of lane l, g = l / 4 and q = l % 4: a's registers are rows g, g + 8, g, g + 8 and
// columns 2 q, 2 q, 2 q + 8, 2 q + 8 with the next; b's are rows 2 q and 2 q + 8 with the next of
// column g; c's are rows g, g, g + 8, g + 8 and columns 2 q, 2 q + 1.
template <Dtype T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  if constexpr (T == Dtype::bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <Dtype T>
__device__ __forceinline__ uint32_t two_of(float low, float high) {
  uint32_t two;
  if constexpr (T == Dtype::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
  }
  return two;
}

}  // namespace octet::cuda
