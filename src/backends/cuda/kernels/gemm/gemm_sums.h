// Test of whether an algorithm of the library computes what math/tensor_sums.h and
// tensor_epilogue.h say: its results of two trials are compared with the rule in all bits, in rows
// and columns at either end.
//   random      normal deviates, scales and alpha that round; a bias takes one result back: where
//               product and addition are fused, what alpha's product with its sum rounds away is
//               left of it
//   cancelling  sums whose second half takes the first one back (GemmTrial::cancel), scales of 1:
//               the order of all additions shows, in a result of 8 bits, too
#pragma once

#include <functional>
#include <vector>

#include "backends/cuda/kernels/gemm/gemm_trial.h"
#include "math/tensor_sums.h"

namespace octet::cuda {

enum class AlphaPlace : uint8_t { one, device };  // alpha: factor, or alpha_beta[0]

class GemmSums {
 public:
  // Of the factors in `trial`, which random or cancelling ones replace.
  GemmSums(int capability, const GemmParams& params, AlphaPlace place, const GemmTrial& trial,
           cudaStream_t stream);

  bool has_rule() const { return rule_ != nullptr; }

  enum class Trial : uint8_t { random, cancelling };
  // In this order. Reads the factors back and adds on the host: up to 0.3 s where k is 16,384.
  void begin(Trial trial);
  // True if what `multiply` enqueues for a call has the rule's bits; of that trial.
  bool holds(const std::function<void(const GemmCall&)>& multiply) const;

 private:
  std::vector<SumFactor> factors(const void* data, Dtype dtype, int64_t k_stride, int64_t line_step,
                                 const std::vector<int64_t>& lines) const;
  float choose_bias();  // and the scale of a with which it tells
  void write_bias() const;

  const TensorSums* rule_;
  GemmParams params_;
  AlphaPlace place_;
  const GemmTrial& trial_;
  cudaStream_t stream_;
  GemmCall call_;
  float alpha_ = 1;
  std::vector<int64_t> rows_, cols_;
  std::vector<float> wanted_;  // [rows][cols], f32
  std::vector<float> bias_;    // of cols_
};

}  // namespace octet::cuda
