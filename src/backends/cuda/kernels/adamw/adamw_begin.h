// The beginning of a step on the device: the norm becomes a factor and a decision, the counters go
// on, and every row of the list gets what is new.
#pragma once

#include "backends/cuda/kernels/adamw/adamw_many.h"
#include "backends/cuda/optimizer_api.h"

namespace octet::cuda {

// Of a weight, as update kernels read them (AdamwCall).
struct StepScalars {
  float lr, c1, c2;
};

struct CountedWeight {
  int64_t* t;
  int32_t numbers;
  int32_t gradient_bytes;  // of an element
};

struct BeginCall {
  OctetCudaControl* control;
  const OctetCudaNumbers* numbers;
  const CountedWeight* weights;
  const char* const* gradients;
  StepScalars* scalars;
  UpdateRow* rows;
  uint32_t n_weights, n_rows;
  float clip;
  bool has_squares;
};
void launch_begin(const BeginCall& call, cudaStream_t stream);

// Copies to the device what the host holds now: it travels as parameters of kernels, so that
// nothing waits and a CUDA graph repeats it.
void launch_write(void* to, const void* from, size_t n_bytes, cudaStream_t stream);

}  // namespace octet::cuda
