// The CUDA module of the tests.
#pragma once

#include <cstdlib>
#include <string>

namespace octet {

// OCTET_CUDA_MODULE names the library; by default it is where `make cuda` puts it.
inline std::string gpu_module() {
  const char* path = std::getenv("OCTET_CUDA_MODULE");
  return path == nullptr ? OCTET_SOURCE_DIR "/build/cuda/liboctet_cuda.so" : path;
}

// True if its devices are those of tests/emulator.
inline bool is_emulated() {
  return gpu_module().find("emulated") != std::string::npos;
}

}  // namespace octet
