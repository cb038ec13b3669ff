// Test that an algorithm of the library adds as math/tensor_sums.h says: what it makes of a trial's
// random factors, whose scales are 1, is compared with the rule in 32 rows by 32 columns, the first
// 16 and the last 16 of each.
#pragma once

#include <vector>

#include "backends/cuda/kernels/gemm/gemm_trial.h"
#include "math/tensor_sums.h"

namespace octet::cuda {

class GemmSums {
 public:
  // Reads the factors of `call` back once and adds on the host: up to 0.3 s where k is 16,384.
  GemmSums(int capability, const GemmParams& params, const GemmCall& call, cudaStream_t stream);

  bool has_rule() const { return rule_ != nullptr; }
  // Before a run that is compared: with y 0, an addend that lies there is 0.
  void clear() const;
  // True if y has the rule's sums after the run behind clear(), in all bits.
  bool are_in_y() const;

 private:
  std::vector<SumFactor> factors(const void* data, Dtype dtype, bool k_major, int64_t outers) const;

  const TensorSums* rule_;
  GemmParams params_;
  GemmCall call_;
  cudaStream_t stream_;
  std::vector<int64_t> rows_, cols_;
  std::vector<float> wanted_;  // [rows][cols], f32
};

}  // namespace octet::cuda
