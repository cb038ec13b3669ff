// The CUDA module as the program sees it: found, loaded and checked once; calls that fail become
// errors.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/module_api.h"

namespace octet::cuda {

class Module {
 public:
  // Loads the library at `path`. Throws Error{device}: not found, not loadable (naming the library
  // that is missing), or of another version than the program.
  static std::shared_ptr<Module> load(const std::string& path);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const OctetCudaApi& api() const { return *api_; }
  // Throws Error{device} with the module's own line where a call did not return 0.
  void check(int status) const;

 private:
  Module(void* library, const OctetCudaApi* api) : library_(library), api_(api) {}
  void* library_;
  const OctetCudaApi* api_;
};

}  // namespace octet::cuda
