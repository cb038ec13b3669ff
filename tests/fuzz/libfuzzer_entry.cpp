// libFuzzer's entry, compiled once for each target with its name in OCTET_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
  octet::fuzz::OCTET_FUZZ_TARGET({reinterpret_cast<const char*>(data), n_bytes});
  return 0;
}
