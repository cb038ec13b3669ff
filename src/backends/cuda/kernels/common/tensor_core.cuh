// Instructions by which a warp multiplies on the tensor cores, m16n8k16, and copies to shared
// memory that go on while it does.
#pragma once

#include <cstdint>

#include "backends/cuda/kernels/common/element.cuh"

namespace octet::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Copies to shared memory that go on while the block computes; zeros where it is not `there`.
__device__ __forceinline__ void fetch_16_bytes(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
// The same of what is there; the 256 bytes around come to the second-level cache, which whoever
// goes along a row reads next.
__device__ __forceinline__ void fetch_along_row(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(shared_address(to)),
               "l"(from)
               : "memory");
}
__device__ __forceinline__ void fetch_4_bytes(void* to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 4 : 0)
               : "memory");
}
// The copies that this thread began since the last call are a group.
__device__ __forceinline__ void end_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All groups of this thread but the last N have arrived.
template <int N>
__device__ __forceinline__ void wait_for_groups_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

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
