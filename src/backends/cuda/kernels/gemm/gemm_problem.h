// One product as cuBLASLt sees it: descriptors, and the algorithm that was chosen for it.
//
// cuBLASLt is column-major and we are row-major: it computes y^T = op(b)^T op(a)^T, so its first
// factor is our b.
#pragma once

#include <cublasLt.h>

#include <string>
#include <vector>

#include "backends/cuda/kernels/gemm/gemm_sums.h"
#include "backends/cuda/kernels/gemm/gemm_trial.h"
#include "backends/cuda/launch/context.h"
#include "backends/cuda/params/gemm.h"

namespace octet::cuda {

class GemmProblem {
 public:
  // Factors with blocks are FP8, K-major, and call.scale_a and scale_b their scales as
  // gemm_scratch.h says.
  // Throws ModuleError where the library has no algorithm within `workspace` bytes. Unless the
  // context is deterministic, the fastest of the library's proposals is found by timing
  // (gemm_trial.h), in memory that the context was lent, else in some of its own while that
  // lasts; where there is none, or the context is deterministic, it is the first proposal. Before
  // all that, an algorithm that the context has cached for this problem is taken where the library
  // still offers it. With params.checks_sums k is not split, and those whose sums are not the
  // rule's are dropped (gemm_sums.h); ModuleError where none is left.
  GemmProblem(Context& context, const GemmParams& params, AlphaPlace place, int64_t workspace);
  ~GemmProblem();
  GemmProblem(const GemmProblem&) = delete;
  GemmProblem& operator=(const GemmProblem&) = delete;

  void run(const GemmCall& call, cudaStream_t stream) { run(call, algorithm_, stream); }

 private:
  void describe();
  std::vector<GemmAlgorithm> proposals() const;
  std::vector<GemmAlgorithm> with_sums(const std::vector<GemmAlgorithm>& all,
                                       const GemmTrial& trial);
  bool take_cached();
  void choose(int64_t workspace);
  void note();
  bool offers(const cublasLtMatmulAlgo_t& algorithm, int64_t* workspace_bytes) const;
  void run(const GemmCall& call, const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream);
  std::string key() const;

  Context& context_;
  GemmParams params_;
  AlphaPlace place_;
  int64_t workspace_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr, y_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace octet::cuda
