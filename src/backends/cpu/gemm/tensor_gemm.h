// GEMMs with the bits of a card's tensor cores (plan/tensor_gemm.h):
//   Y [M, N] = epilogue(sums of products of op(A) [M, K] and op(B) [K, N], c)
// The same bits on every vector target, without one (`plain`), and for any number of threads: an
// output is one sum, in the order of k, whatever tile it lies in.
//
// An instance is prepared once for a node's types and launched often; launch does not allocate.
// Factors are packed tile by tile in each thread's scratch.
#pragma once

#include <optional>

#include "backends/cpu/common/operand.h"
#include "ir/types.h"
#include "plan/tensor_gemm.h"

namespace octet::cpu {

struct TensorGemmSpec {
  TensorGemm gemm;
  int64_t m = 0, n = 0, k = 0;
  TensorType a, b;  // as they lie; op(A) of a that is `trans_a` lies as [K, M]
  bool trans_a = false, trans_b = false;
  Dtype scale_a = Dtype::f32, scale_b = Dtype::f32;  // of the scales
  bool plain = false;
};

struct TensorGemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  Out y = {};                     // f32, bf16, fp16, or e4m3 with scale_y
  const void* scale_a = nullptr;  // absent: 1
  const void* scale_b = nullptr;
  const float* scale_y = nullptr;  // a power of two
  In bias = {};                    // [N]
  In addend = {};                  // [M, N]; may be y
  void* scratch = nullptr;         // scratch_bytes(), aligned to 64 bytes
};

class TensorSumGemm {
 public:
  TensorSumGemm(const TensorGemmSpec& spec, int n_threads) : spec_(spec), n_threads_(n_threads) {}
  size_t scratch_bytes() const;
  // `pool` has at most n_threads threads.
  void launch(const TensorGemmArgs& args, ThreadPool& pool) const;

 private:
  TensorGemmSpec spec_;
  int n_threads_;
};

}  // namespace octet::cpu
