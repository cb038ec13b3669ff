#include "backends/cuda/backend.h"

#include "backends/cuda/target/catalogue.h"
#include "backends/cuda/target/device.h"
#include "base/error.h"

namespace octet::cuda {
namespace {

[[noreturn]] void no_memory() {
  throw Error(ErrorCode::device, "[cuda] expected a GPU, got a back end that only plans");
}

// Stands for a GPU of 80 GB that is not there.
class PlanDevice : public Device {
 public:
  DeviceInfo info() const override {
    return {.name = "cuda (plan only)", .memory_bytes = int64_t{80} << 30, .n_threads = 1};
  }
  std::unique_ptr<DeviceMemory> allocate(int64_t /*bytes*/) override { no_memory(); }
  void copy_in(std::byte* /*to*/, const void* /*from*/, int64_t /*bytes*/) override { no_memory(); }
  void copy_out(void* /*to*/, const std::byte* /*from*/, int64_t /*bytes*/) override {
    no_memory();
  }
  void copy_within(std::byte* /*to*/, const std::byte* /*from*/, int64_t /*bytes*/) override {
    no_memory();
  }
  void fill_zero(std::byte* /*address*/, int64_t /*bytes*/) override { no_memory(); }
  void synchronize() override {}
  void record_timing_event(int /*index*/, Stream /*stream*/) override { no_memory(); }
  double ms_between(int /*from*/, int /*to*/) override { no_memory(); }
};

// Machine that the algorithms of products hold for.
std::string machine_of(const CudaDevice& device, const BackendOptions& options) {
  return fmt::format("{}, cuBLASLt {}, {}", device.details().name, device.details().blas,
                     options.deterministic ? "deterministic" : "by timing");
}

}  // namespace

Backend make_backend(const BackendOptions& options) {
  const auto module = Module::load(options.module);
  const OctetCudaOptions open{.device = options.device,
                              .deterministic = options.deterministic ? 1 : 0,
                              .nccl = options.nccl.c_str()};
  Backend backend;
  backend.pool = std::make_unique<ThreadPool>(options.n_threads);
  auto device = std::make_unique<CudaDevice>(module, open, backend.pool->n_threads());
  const std::vector<DeviceLibrary> libraries = device->libraries();
  backend.catalogue =
      std::make_unique<CudaCatalogue>(CatalogueOptions{.deterministic = options.deterministic,
                                                       .machine = machine_of(*device, options),
                                                       .capability = device->capability(),
                                                       .blas = libraries[0].version,
                                                       .dnn = libraries[1].version},
                                      module);
  backend.device = std::move(device);
  return backend;
}

Backend make_plan_backend(const PlanBackendOptions& options) {
  Backend backend;
  backend.pool = std::make_unique<ThreadPool>(options.n_threads);
  backend.device = std::make_unique<PlanDevice>();
  backend.catalogue = std::make_unique<CudaCatalogue>(CatalogueOptions{
      .deterministic = options.deterministic, .machine = {}, .capability = options.capability});
  return backend;
}

}  // namespace octet::cuda
