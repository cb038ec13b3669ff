// Faults of the emulated device.
#pragma once

#include <dlfcn.h>

#include <cstdint>

#include "gpu/parity/gpu.h"

namespace octet {

// Parts that the emulator leaves out (tests/emulator/faults.h).
enum Omitted : int { none, all, last, last_factors, promotion, one_bit };
inline int64_t omit(Omitted what) {
  using Omit = int64_t (*)(int);
  static const auto set = [] {
    void* const module = dlopen(gpu_module().c_str(), RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<Omit>(dlsym(module, "octet_emulated_omit"));
  }();
  return set(what);
}

}  // namespace octet
