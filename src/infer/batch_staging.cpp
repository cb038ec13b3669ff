#include "infer/batch_staging.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "infer/batch_inputs.h"

namespace octet {

// Taking page-locked memory stops the device for a moment: it is kept for the next batch.
class BatchStaging::Pool : public std::enable_shared_from_this<Pool> {
 public:
  explicit Pool(Device& device) : device_(device) {}

  std::shared_ptr<std::byte> take(int64_t n_bytes) {
    const std::shared_ptr<DeviceMemory> memory = find_or_allocate(n_bytes);
    const auto give_back = [pool = shared_from_this(), memory](std::byte*) {
      const std::lock_guard lock(pool->mutex_);
      pool->free_.push_back(memory);
    };
    return {memory->data(), give_back};
  }

 private:
  std::shared_ptr<DeviceMemory> find_or_allocate(int64_t n_bytes) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::ranges::find(free_, n_bytes, &DeviceMemory::bytes);
      if (found != free_.end()) {
        std::swap(*found, free_.back());
        std::shared_ptr<DeviceMemory> memory = std::move(free_.back());
        free_.pop_back();
        return memory;
      }
    }
    device_.enter();
    return device_.allocate_host(n_bytes);
  }

  Device& device_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<DeviceMemory>> free_;
};

BatchStaging::BatchStaging(Device& device, const Graph& graph)
    : pool_(std::make_shared<Pool>(device)) {
  for (const GraphInput& input : graph.inputs) {
    if (input.kind == InputKind::batch) dtypes_[input.name] = graph.type(input.value).dtype;
  }
}

void BatchStaging::stage(Batch& batch) const {
  for (HostTensor& tensor : batch.tensors) {
    auto* numbers = std::get_if<std::vector<float>>(&tensor.values);
    const auto dtype = dtypes_.find(tensor.spec.name);
    if (numbers == nullptr || dtype == dtypes_.end() || tensor.spec.fill != Fill::zero) continue;
    const auto n_bytes = static_cast<size_t>(bytes_of(dtype->second, std::ssize(*numbers)));
    if (std::cmp_less(n_bytes, kMin)) continue;
    const std::shared_ptr<std::byte> to = pool_->take(static_cast<int64_t>(n_bytes));
    write_numbers(*numbers, dtype->second, {to.get(), n_bytes});
    tensor.staged = {to, n_bytes};
    numbers->clear();
    numbers->shrink_to_fit();
  }
}

}  // namespace octet
