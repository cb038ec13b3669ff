// The kernels of attention: the library's where it takes the problem, else ours.
#pragma once

#include "backends/cuda/module/kernel.h"
#include "backends/cuda/params/attention.h"

namespace octet::cuda {

struct AttentionForward {
  const void *q, *k, *v;
  void* o;
  float* lse;
};
struct AttentionBackward {
  const void *dout, *q, *k, *v, *o;
  const float* lse;
  void *dq, *dk, *dv;
  float* delta;  // [batch * heads * seq] in scratch: sum of do * o
};

// For any type and head size, with f32 products.
void plain_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream);
void plain_attention_grad(const AttentionParams& p, const AttentionBackward& x,
                          cudaStream_t stream);

// nullptr where the library is not there or does not take the problem; throws ModuleError where it
// wants more scratch than the request has.
std::unique_ptr<Prepared> library_attention(const Request& request);
std::unique_ptr<Prepared> library_attention_grad(const Request& request);

}  // namespace octet::cuda
