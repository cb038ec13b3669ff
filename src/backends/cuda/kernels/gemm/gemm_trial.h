// Which of several algorithms for one product is the fastest where it matters: in training, with
// the card at its power limit.
//
// A Hopper card draws more than it may under FP8 products and lowers its clock within milliseconds.
// The algorithm that wins a few calls on a cool card then loses by up to a tenth to one that moves
// fewer bytes for the same result, so each candidate is timed under load that it makes itself, on
// normally distributed values: matrices that repeat or lie in a narrow band switch fewer bits.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <span>

#include "backends/cuda/params/gemm.h"

namespace octet::cuda {

// Arguments of one call.
struct GemmCall {
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  const void* bias = nullptr;  // n of y's type, where the problem has one
  void* y = nullptr;
  const float *scale_a = nullptr, *scale_b = nullptr;  // of FP8 factors
  const float* alpha_beta = nullptr;  // on the device, where the problem was made with it
  void* workspace = nullptr;
};

class GemmTrial {
 public:
  // Factors, result and workspace of the product, in `lent` where they fit, else in memory of their
  // own; enqueues their filling.
  GemmTrial(const GemmParams& params, int64_t workspace, std::span<std::byte> lent,
            cudaStream_t stream);
  ~GemmTrial();
  GemmTrial(const GemmTrial&) = delete;
  GemmTrial& operator=(const GemmTrial&) = delete;

  bool has_memory() const { return data_ != nullptr; }
  // Scales and alpha 1, no addend.
  const GemmCall& call() const { return call_; }

  // call() with these scales of factors without blocks, and this alpha on the device; waits.
  GemmCall scaled(float scale_a, float scale_b, float alpha) const;
  // n values of y's type, where the problem has a bias; waits.
  void set_bias(std::span<const std::byte> values) const;
  // The second half of each sum becomes the first one backwards, negated (a middle product 0): its
  // result is what the additions round away, so that every bit of it depends on their order.
  void cancel(const GemmParams& params) const;

  struct Winner {
    int candidate = 0;
    float ms = 0;  // of a call; 0: none could be timed
  };
  // The candidate in [0, n) that takes least time; enqueue(i) enqueues one call of candidate i and
  // throws ModuleError where the library refuses it after all. Takes about n times 60 ms for
  // products of a tenth of a millisecond or more, less for smaller ones.
  Winner fastest(int n, const std::function<void(int)>& enqueue) const;

 private:
  float mean_ms(int calls, const std::function<void()>& enqueue) const;

  cudaStream_t stream_;
  void *data_ = nullptr, *own_ = nullptr;
  cudaEvent_t from_ = nullptr, to_ = nullptr;
  GemmCall call_;
};

}  // namespace octet::cuda
