// The kernels of attention: the library's where it takes the problem, else ours.
#pragma once

#include <initializer_list>

#include "backends/cuda/launch/kernel.h"
#include "backends/cuda/params/attention.h"

namespace octet::cuda {

// doc_starts: nullptr without documents.
struct AttentionForward {
  const void *q, *k, *v;
  const int32_t* doc_starts;
  void* o;
  float* lse;
  const int32_t* positions = nullptr;  // of cached_attention
};
struct AttentionBackward {
  const void *dout, *q, *k, *v, *o;
  const float* lse;
  const int32_t* doc_starts;
  void *dq, *dk, *dv;
  float* delta;  // [batch * heads * seq] in scratch: sum of do * o
};

// For any type and head size, with f32 products.
void plain_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream);
void plain_attention_grad(const AttentionParams& p, const AttentionBackward& x,
                          cudaStream_t stream);

// On tensor cores, also over a KV cache: bf16 and fp16 of head sizes that are multiples of 8 up to
// 128, every address a multiple of 16. P and dS are rounded to that type for their products.
bool tensor_cores_take(const AttentionParams& p, std::initializer_list<const void*> addresses);
// Whether the device's blocks also have the shared memory that the gradient wants (104 KB for heads
// of 128; 99 KB are there on compute capability 8.9 and 12.0).
bool tensor_gradient_takes(const AttentionParams& p, std::initializer_list<const void*> addresses);
void tensor_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream);
void tensor_attention_grad(const AttentionParams& p, const AttentionBackward& x,
                           cudaStream_t stream);

// Over a KV cache.
void cached_attention(const AttentionParams& p, const AttentionForward& x, cudaStream_t stream);

// nullptr where the library is not there or does not take the problem; where it wants more scratch
// than the request has, nullptr for a deterministic gradient, else throws ModuleError.
std::unique_ptr<Prepared> library_attention(const Request& request);
std::unique_ptr<Prepared> library_attention_grad(const Request& request);

// The library's version, "9.19.0"; empty where it is not used, and `problem` then says why.
std::string attention_library_version(Context& context, std::string& problem);

}  // namespace octet::cuda
