// The parts of the family's list.
#pragma once

#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/params/move.h"
#include "backends/cuda/params/pictures.h"

namespace octet::cuda {

std::unique_ptr<Prepared> prepare_fill(const Request& request);
std::unique_ptr<Prepared> prepare_iota(const Request& request);
std::unique_ptr<Prepared> prepare_copies(const Request& request);
// n elements of f32, bf16 or fp16 to another of them, or to the same.
struct CastCall {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t n = 0;
  Dtype x = Dtype::f32, y = Dtype::f32;
};
void launch_cast(const CastCall& call, cudaStream_t stream);
void run_axpby(const AxpbyParams& p, const Launch& args);
// Comparisons and choices; false, and nothing launched, for types and addresses that it lacks.
bool run_masks(const ElementParams& p, const Launch& args);
void run_unfold(const UnfoldParams& p, const Launch& args);
void run_fold(const UnfoldParams& p, const Launch& args);
void run_depthwise(const DepthwiseParams& p, const Launch& args);
void run_depthwise_weight(const DepthwiseParams& p, const Launch& args);
std::unique_ptr<Prepared> prepare_cache_write(const Request& request);

}  // namespace octet::cuda
