// What a product needs beside its operands: one formula for the plan and for the kernel.
//
// FP8 products run as they are where the library takes them: e4m3 x e4m3, e4m3 x e5m2 and e5m2 x
// e4m3, both factors K-major, m, n and k multiples of 16. Every other product of codes decodes both
// factors to BF16, which is exact, into scratch.
#pragma once

#include "backends/cuda/params/gemm.h"
#include "formats/table.h"

namespace octet::cuda {

inline constexpr int64_t kGemmWorkspace = int64_t{32} << 20;

constexpr bool runs_in_fp8(const GemmParams& p) {
  return is_fp8(p.a) && is_fp8(p.b) && !(p.a == Dtype::e5m2 && p.b == Dtype::e5m2) && !p.trans_a &&
         p.trans_b && p.m % 16 == 0 && p.n % 16 == 0 && p.k % 16 == 0;
}

// Bytes of one factor decoded to BF16, rounded up to 256.
constexpr int64_t decoded_bytes(int64_t n_elems) {
  return (2 * n_elems + 255) / 256 * 256;
}

// Workspace, then one f32 (the product of the scales), then the decoded factors.
constexpr int64_t gemm_scratch_bytes(const GemmParams& p) {
  if (!is_gemm_operand(p.a) || runs_in_fp8(p)) return kGemmWorkspace;
  return kGemmWorkspace + 256 + decoded_bytes(p.m * p.k) + decoded_bytes(p.n * p.k);
}

}  // namespace octet::cuda
