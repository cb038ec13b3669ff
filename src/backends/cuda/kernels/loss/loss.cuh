// The parts of the family's list.
#pragma once

#include "backends/cuda/kernels/common/element.cuh"
#include "backends/cuda/params/loss.h"

namespace octet::cuda {

std::unique_ptr<Prepared> prepare_embedding(const Request& request);
std::unique_ptr<Prepared> prepare_embedding_grad(const Request& request);

}  // namespace octet::cuda
