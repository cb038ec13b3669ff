#include <dlfcn.h>

#include <map>

#include "backends/cuda/kernels/ranks/nccl_api.h"
#include "backends/cuda/launch/kernel.h"

namespace octet::cuda::nccl {
namespace {

constexpr const char* kName = "libnccl.so.2";

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw ModuleError(std::string("expected a library of NCCL, got one without ") + name);
}

Api load(const std::string& file) {
  void* const library = dlopen(file.empty() ? kName : file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw ModuleError(dlerror());
  Api api;
  find(library, "ncclGetVersion", api.get_version);
  find(library, "ncclGetUniqueId", api.get_unique_id);
  find(library, "ncclCommInitRankConfig", api.init_rank);
  find(library, "ncclCommGetAsyncError", api.get_async_error);
  find(library, "ncclCommFinalize", api.finalize);
  find(library, "ncclCommDestroy", api.destroy);
  find(library, "ncclCommAbort", api.end_now);
  find(library, "ncclGetErrorString", api.error_string);
  find(library, "ncclGetLastError", api.last_error);
  find(library, "ncclGroupStart", api.group_start);
  find(library, "ncclGroupEnd", api.group_end);
  find(library, "ncclSend", api.send);
  find(library, "ncclRecv", api.recv);
  find(library, "ncclAllGather", api.all_gather);
  find(library, "ncclAllReduce", api.all_reduce);
  if (api.get_version(&api.version) != success || api.version < kMinVersion)
    throw ModuleError("expected version " + version_text(kMinVersion) + " or later, got " +
                      version_text(api.version));
  Dl_info info{};
  const bool is_known = dladdr(reinterpret_cast<void*>(api.get_version), &info) != 0;
  api.file = is_known ? info.dli_fname : file;
  return api;
}

}  // namespace

const Api& open(const std::string& file) {
  static std::map<std::string, Api> opened;
  const auto found = opened.find(file);
  return found != opened.end() ? found->second : opened.emplace(file, load(file)).first->second;
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace octet::cuda::nccl
