// What the module's C interface shares: the one context of the process.
#pragma once

#include "backends/cuda/launch/context.h"

namespace octet::cuda {

Context& context();

// Until the compute stream, and that of transfers where it is asked for, has ended its work.
enum class Streams : uint8_t { compute, both };
void await(Streams streams);

}  // namespace octet::cuda
