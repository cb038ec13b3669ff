// How long the learning rate rises in a run that is shorter than the rise was made for.
#pragma once

#include <cstdint>

namespace octet {

// optim.warmup in a run of `steps`: as it is where it fits, else a tenth of the run.
constexpr int64_t fitted_warmup(int64_t warmup, int64_t steps) {
  return warmup <= steps ? warmup : steps / 10;
}

}  // namespace octet
