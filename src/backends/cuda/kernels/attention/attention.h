// The kernels of attention, the library's and ours; which of them takes what: rows/attention.h.
#pragma once

#include "backends/cuda/launch/kernel.h"
#include "backends/cuda/rows/attention.h"

namespace octet::cuda {

// nullptr: not there.
struct KeyRanges {
  const int32_t *begins, *ends;
};
struct AttentionForward {
  const void *q, *k, *v;
  KeyRanges ranges;
  void* o;
  float* lse;
  const int32_t* positions = nullptr;  // over a cache
  const void* bias = nullptr;
  float* slices = nullptr;  // scratch of cached_scratch_bytes
};
AttentionForward forward_args(const AttentionParams& p, const Launch& args);
struct AttentionBackward {
  const void *dout, *q, *k, *v, *o;
  const float* lse;
  KeyRanges ranges;
  void *dq, *dk, *dv;
  float* delta;  // [batch * heads * q_len] in scratch: sum of do * o
  const void* bias = nullptr;
  void* dbias = nullptr;
};

// For any type and head size, with f32 products.
void plain_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream);
void plain_attention_grad(const AttentionParams& p, const AttentionBackward& x,
                          cudaStream_t stream);

// On tensor cores, also over a KV cache. Every address is a multiple of 16.
// Whether the device's blocks have the shared memory that the gradient wants.
bool tensor_gradient_fits(const AttentionParams& p);
void tensor_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream);
void tensor_attention_grad(const AttentionParams& p, const AttentionBackward& x,
                           cudaStream_t stream);
// x.dbias, of x.lse and x.delta: what tensor_attention_grad ends with.
void tensor_bias_gradient(const AttentionParams& p, const AttentionBackward& x,
                          cudaStream_t stream);

// Over a KV cache.
void cached_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream);
// Also makes a chain of rotations, writes of caches and attention (target/chains.h).
std::unique_ptr<Prepared> prepare_cached_attention(const Request& request);

// Throws KernelUnavailable where the library is not there, does not take the problem, or wants more
// scratch than the request has.
std::unique_ptr<Prepared> library_attention(const Request& request);
std::unique_ptr<Prepared> library_attention_grad(const Request& request);

// The library's version, "9.19.0"; empty where it is not used, and `problem` then says why.
std::string attention_library_version(Context& context, std::string& problem);

}  // namespace octet::cuda
