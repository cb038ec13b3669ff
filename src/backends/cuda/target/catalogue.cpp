#include "backends/cuda/target/catalogue.h"

#include <fmt/ranges.h>

#include "backends/cuda/target/bind/binding.h"
#include "base/error.h"
#include "ir/op_def.h"
#include "plan/kernel_name.h"

namespace octet::cuda {
namespace {

int64_t scratch_of(const Binding& binding, const NodeView& view) {
  return binding.scratch_bytes == nullptr ? 0 : binding.scratch_bytes(view);
}

// A kernel of the module, given back with the last copy of the launch function.
class Handle {
 public:
  Handle(std::shared_ptr<Module> module, const OctetCudaKernel& kernel)
      : module_(std::move(module)) {
    module_->check(module_->api().prepare(&kernel, &handle_));
  }
  ~Handle() { module_->api().forget(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void launch(const LaunchArgs& args) const {
    const OctetCudaLaunch call{.operands = reinterpret_cast<void* const*>(args.operands.data()),
                               .results = reinterpret_cast<void* const*>(args.results.data()),
                               .scratch = args.scratch};
    module_->check(module_->api().launch(handle_, &call));
  }

 private:
  std::shared_ptr<Module> module_;
  void* handle_ = nullptr;
};

}  // namespace

std::optional<KernelChoice> CudaCatalogue::choose(const Graph& graph, const Node& node) const {
  const NodeView view{graph, node};
  const Binding* binding = find_binding(view);
  if (binding == nullptr) return std::nullopt;
  return KernelChoice{
      .name = kernel_name(view), .scratch_bytes = scratch_of(*binding, view), .reference = false};
}

LaunchFn CudaCatalogue::prepare(const Graph& graph, const Node& node) {
  const NodeView view{graph, node};
  const Binding* binding = find_binding(view);
  if (binding == nullptr)
    throw Error(ErrorCode::internal, "[cuda] no kernel for {}", op_def(node.op).name);
  if (module_ == nullptr)
    throw Error(ErrorCode::device, "[cuda] expected the CUDA module, got a plan without device");
  const KernelSpec spec = binding->spec(view);
  const OctetCudaKernel kernel{.kernel = static_cast<int32_t>(spec.kernel),
                               .reserved = 0,
                               .params = spec.params.data(),
                               .params_bytes = static_cast<int64_t>(spec.params.size()),
                               .scratch_bytes = scratch_of(*binding, view)};
  const auto handle = std::make_shared<Handle>(module_, kernel);
  return [handle](const LaunchArgs& args) { handle->launch(args); };
}

}  // namespace octet::cuda
