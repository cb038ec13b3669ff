#include "backends/cuda/target/device.h"

#include "backends/cuda/target/architecture.h"
#include "base/error.h"

namespace octet::cuda {
namespace {

// Memory of the device, or pinned memory of the host.
class CudaMemory : public DeviceMemory {
 public:
  using Allocate = decltype(OctetCudaApi::allocate);
  using Release = decltype(OctetCudaApi::release);

  CudaMemory(std::shared_ptr<Module> module, int64_t bytes, Allocate allocate, Release release)
      : module_(std::move(module)), release_(release), bytes_(bytes) {
    module_->check(allocate(bytes, &address_));
  }
  ~CudaMemory() override { release_(address_); }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  std::byte* data() override { return static_cast<std::byte*>(address_); }
  int64_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<Module> module_;
  Release release_;
  void* address_ = nullptr;
  int64_t bytes_;
};

class CapturedCudaGraph : public CapturedGraph {
 public:
  CapturedCudaGraph(std::shared_ptr<Module> module, void* graph)
      : module_(std::move(module)), graph_(graph) {}
  ~CapturedCudaGraph() override { module_->api().record_forget(graph_); }
  CapturedCudaGraph(const CapturedCudaGraph&) = delete;
  CapturedCudaGraph& operator=(const CapturedCudaGraph&) = delete;
  void replay() override { module_->check(module_->api().record_replay(graph_)); }

 private:
  std::shared_ptr<Module> module_;
  void* graph_;
};

}  // namespace

CudaDevice::CudaDevice(std::shared_ptr<Module> module, const OctetCudaOptions& options,
                       int n_threads)
    : module_(std::move(module)), n_threads_(n_threads) {
  check(module_->api().open(&options, &info_));
  if (find_architecture(capability()) == nullptr)
    throw Error(ErrorCode::device,
                "[cuda] expected a GPU of compute capability 8.0 or later, got {} ({}.{})",
                info_.name, info_.sm_major, info_.sm_minor);
  if (info_.has_code == 0)
    throw Error(ErrorCode::device,
                "[cuda] expected a module built for {} ({}.{}), got one without code for it: "
                "OCTET_CUDA_ARCH={}{} make cuda",
                info_.name, info_.sm_major, info_.sm_minor, info_.sm_major, info_.sm_minor);
}

DeviceInfo CudaDevice::info() const {
  return {.name = fmt::format("cuda ({})", info_.name),
          .memory_bytes = info_.free_bytes,
          .n_threads = n_threads_,
          .reaches_peers = true,
          .is_asynchronous = true};
}

void CudaDevice::enter() {
  check(module_->api().enter());
}

std::unique_ptr<DeviceMemory> CudaDevice::allocate(int64_t bytes) {
  const OctetCudaApi& api = module_->api();
  return std::make_unique<CudaMemory>(module_, bytes, api.allocate, api.release);
}
std::unique_ptr<DeviceMemory> CudaDevice::allocate_host(int64_t bytes) {
  const OctetCudaApi& api = module_->api();
  return std::make_unique<CudaMemory>(module_, bytes, api.host_allocate, api.host_release);
}
void CudaDevice::copy_in(std::byte* to_device, const void* from_host, int64_t bytes) {
  check(module_->api().copy_in(to_device, from_host, bytes));
}
void CudaDevice::copy_in_all(const std::vector<HostBytes>& parts) {
  std::vector<OctetCudaPart> list;
  for (const HostBytes& part : parts) list.push_back({part.to, part.from, part.bytes});
  check(module_->api().copy_parts_in(list.data(), static_cast<int32_t>(list.size())));
}
void CudaDevice::set_workspace(DeviceMemory* memory) {
  const bool is_given = memory != nullptr;
  module_->check(
      module_->api().lend(is_given ? memory->data() : nullptr, is_given ? memory->bytes() : 0));
}
void CudaDevice::copy_out(void* to_host, const std::byte* from_device, int64_t bytes) {
  check(module_->api().copy_out(to_host, from_device, bytes));
}
void CudaDevice::copy_out_on_side_stream(void* to_host, const std::byte* from_device,
                                         int64_t bytes) {
  check(module_->api().copy_out_beside(to_host, from_device, bytes));
}
void CudaDevice::copy_within(std::byte* to, const std::byte* from, int64_t bytes) {
  check(module_->api().copy_within(to, from, bytes));
}
void CudaDevice::fill_zero(std::byte* on_device, int64_t bytes) {
  check(module_->api().zero(on_device, bytes));
}
void CudaDevice::fill_nan_where(const std::byte* flag, std::span<const DeviceRange> ranges) {
  static_assert(kMaxNanRanges == OCTET_CUDA_MAX_RANGES);
  std::vector<OctetCudaRange> list;
  for (const DeviceRange& range : ranges) list.push_back({range.data, range.bytes});
  check(module_->api().fill_nan_where(flag, list.data(), static_cast<int32_t>(list.size())));
}
void CudaDevice::borrow_stream(void* stream) {
  check(module_->api().borrow_stream(stream));
}
void CudaDevice::return_stream() {
  check(module_->api().return_stream());
}
void CudaDevice::synchronize() {
  check(module_->api().synchronize());
}
void CudaDevice::await_ranks(std::chrono::milliseconds patience) {
  check(module_->api().await_ranks(static_cast<int32_t>(patience.count())));
}

CudaDevice::~CudaDevice() {
  if (ranks_.n_ranks > 1) module_->api().leave();  // also where joining failed half way
  for (void* event : timing_events_) module_->api().mark_forget(event);
  for (void* event : events_) module_->api().mark_forget(event);
}

// Another rank's failure counts, where a call ended for that.
void CudaDevice::check(int status) {
  if (status == 0) return;
  const std::lock_guard lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  module_->check(status);
}

void* CudaDevice::event(std::vector<void*>& events, int index) {
  while (std::ssize(events) <= index) {
    void* event = nullptr;
    check(module_->api().mark_new(&event));
    events.push_back(event);
  }
  return events[static_cast<size_t>(index)];
}
void CudaDevice::record_timing_event(int index, Stream stream) {
  check(module_->api().mark_set(event(timing_events_, index), static_cast<int32_t>(stream)));
}
void CudaDevice::signal(int index, Stream stream) {
  check(module_->api().mark_set(event(events_, index), static_cast<int32_t>(stream)));
}
void CudaDevice::wait(int index, Stream stream) {
  check(module_->api().mark_wait(event(events_, index), static_cast<int32_t>(stream)));
}

double CudaDevice::ms_between(int from, int to) {
  float ms = 0;
  check(module_->api().mark_elapsed(timing_events_.at(static_cast<size_t>(from)),
                                    timing_events_.at(static_cast<size_t>(to)), &ms));
  return static_cast<double>(ms);
}

std::unique_ptr<CapturedGraph> CudaDevice::capture(const std::function<void()>& launches) {
  check(module_->api().record_begin());
  void* graph = nullptr;
  try {
    launches();
  } catch (...) {
    if (module_->api().record_end(&graph) == 0) module_->api().record_forget(graph);
    throw;
  }
  check(module_->api().record_end(&graph));
  return std::make_unique<CapturedCudaGraph>(module_, graph);
}

int64_t CudaDevice::used_bytes() {
  int64_t bytes = 0;
  check(module_->api().used_bytes(&bytes));
  return bytes;
}

std::vector<DeviceLibrary> CudaDevice::libraries() {
  OctetCudaLibrary found{};
  check(module_->api().attention_library(&found));
  DeviceLibrary dnn{"cuDNN", found.version, ""};
  if (dnn.version.empty())
    dnn.problem = fmt::format("{}: attention falls back to Octet's own kernels, which are slower",
                              found.problem);
  return {{"cuBLASLt", info_.blas, ""}, dnn};
}

}  // namespace octet::cuda
