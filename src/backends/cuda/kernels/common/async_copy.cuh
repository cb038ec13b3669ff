// Copies to shared memory that go on while the block computes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace octet::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Zeros where it is not `there`.
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

}  // namespace octet::cuda
