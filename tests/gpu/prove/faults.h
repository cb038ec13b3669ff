// Faults of the emulated device.
#pragma once

#include <dlfcn.h>

#include <cstdint>

#include "gpu/parity/gpu.h"

namespace octet {

// A function of the emulator.
template <typename Function>
Function* emulated(const char* name) {
  void* const module = dlopen(gpu_module().c_str(), RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(dlsym(module, name));
}

// What the emulator leaves out (tests/emulator/faults.h).
enum Omitted : int { none, all, last, last_factors, promotion, one_bit };
inline int64_t omit(Omitted what) {
  static const auto set = emulated<int64_t(int)>("octet_emulated_omit");
  return set(what);
}

}  // namespace octet
