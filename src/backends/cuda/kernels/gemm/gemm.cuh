// Shared parts of the kernels of products.
#pragma once

#include <memory>

#include "backends/cuda/kernels/gemm/gemm_problem.h"
#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

struct GemmOperand {
  enum Slot : int { a, b, c, scale_a, scale_b };
};

// Scratch of gemm_scratch.h, cut up.
struct GemmScratch {
  void* workspace;
  float* alpha_beta;
  void* sums;
  std::byte* factors;
};
GemmScratch gemm_scratch(const GemmParams& p, void* scratch);

// A product of what the library multiplies, its sums apart where that must be.
class GemmProduct {
 public:
  GemmProduct(Context& context, const GemmParams& p, AlphaPlace place);
  // call.c and call.y are of the product's types. sums: where it makes them apart.
  void run(const GemmCall& call, void* sums, cudaStream_t stream);

 private:
  void run_apart(const GemmCall& call, void* sums, cudaStream_t stream);

  GemmParams p_;
  std::unique_ptr<GemmProblem> whole_, rest_;  // of as many rows as sums are made of, and the last
};

// Products with has_few_rows(p) (gemm_scratch.h).
std::unique_ptr<Prepared> prepare_few_rows(const GemmParams& p);
// Those with is_weight_only(p).
std::unique_ptr<Prepared> prepare_weight_only(const GemmParams& p);

// Factors in blocks: the library's own kernels. Throws ModuleError where it has none.
std::unique_ptr<Prepared> prepare_gemm_blocks(Context& context, const GemmParams& p);

}  // namespace octet::cuda
