#include "backends/cuda/target/module.h"

#include <dlfcn.h>

#include <filesystem>

#include "backends/cuda/kernel_id.h"
#include "base/error.h"

namespace octet::cuda {

std::shared_ptr<Module> Module::load(const std::string& path) {
  std::error_code error;  // opening a pipe would wait for its other end
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    throw Error(ErrorCode::device, "[cuda] expected the CUDA module, got no regular file: {}",
                path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw Error(ErrorCode::device,
                "[cuda] expected the CUDA module (`make cuda` builds it), got {}", dlerror());
  using Entry = const OctetCudaApi* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, OCTET_CUDA_API_SYMBOL));
  const OctetCudaApi* api = entry == nullptr ? nullptr : entry();
  if (api == nullptr || api->version != OCTET_CUDA_API_VERSION || api->n_kernels != kKernelCount) {
    dlclose(library);
    throw Error(ErrorCode::device,
                "[cuda] expected a CUDA module of this program's version, got another: {}", path);
  }
  return std::shared_ptr<Module>(new Module(library, api));
}

// The library stays loaded: CUDA's own clean-up at exit still runs code in it.
Module::~Module() = default;

void Module::check(int status) const {
  if (status != 0) throw Error(ErrorCode::device, "{}", api_->last_error());
}

}  // namespace octet::cuda
