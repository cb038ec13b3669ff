// The parts of the family's list.
#pragma once

#include "backends/cuda/kernels/element.cuh"
#include "backends/cuda/params/move.h"

namespace octet::cuda {

std::unique_ptr<Prepared> prepare_fill(const Request& request);
std::unique_ptr<Prepared> prepare_copies(const Request& request);
void write_cache(const CacheWriteParams& p, const Launch& args);

}  // namespace octet::cuda
