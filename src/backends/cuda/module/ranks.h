// The part of the module's C interface (module_api.h) that is between ranks.
#pragma once

#include "backends/cuda/module_api.h"

namespace octet::cuda {

int share(void* address, uint8_t* handle);
int nccl_library(OctetCudaLibrary* library);
int nccl_id(uint8_t* id);
int join(const OctetCudaJoin* join);
int connect(const OctetCudaRanks* ranks);
int leave();
int await_ranks(int32_t milliseconds);

}  // namespace octet::cuda
