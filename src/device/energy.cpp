#include "device/energy.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace octet {

// The part of NVIDIA's management library that is asked: version 2 of its interface, which every
// driver since 2016 has.
struct EnergyCounter::Nvml {
  using Device = void*;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  Device device = nullptr;
  int (*shut_down)() = nullptr;
  int (*total_energy)(Device, unsigned long long*) = nullptr;

  template <typename Function>
  bool find(Function*& function, const char* name) const {
    function = library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr;
  }

  Nvml() {
    int (*init)() = nullptr;
    int (*count)(unsigned*) = nullptr;
    int (*handle)(unsigned, Device*) = nullptr;
    unsigned n_devices = 0;
    if (!find(init, "nvmlInit_v2") || !find(count, "nvmlDeviceGetCount_v2") ||
        !find(handle, "nvmlDeviceGetHandleByIndex_v2") || !find(shut_down, "nvmlShutdown") ||
        !find(total_energy, "nvmlDeviceGetTotalEnergyConsumption") || init() != 0)
      return;
    if (count(&n_devices) != 0 || n_devices != 1 || handle(0, &device) != 0) device = nullptr;
    if (device == nullptr) shut_down();
  }
  ~Nvml() {
    if (device != nullptr) shut_down();
    if (library != nullptr) dlclose(library);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::optional<double> joules() const {
    unsigned long long mj = 0;
    if (device == nullptr || total_energy(device, &mj) != 0) return std::nullopt;
    return static_cast<double>(mj) / 1e3;
  }
};

namespace {

// A package is a zone of one number, "intel-rapl:0"; its parts, which are in its sum, have two.
std::optional<double> package_joules(const std::string& powercap) {
  double sum = 0;
  bool is_any = false;
  std::error_code error;
  for (const auto& zone : std::filesystem::directory_iterator(powercap, error)) {
    const std::string name = zone.path().filename().string();
    const auto colon = name.find(':');
    if (colon == std::string::npos || name.find(':', colon + 1) != std::string::npos) continue;
    std::ifstream file(zone.path() / "energy_uj");
    double uj = 0;
    if (!(file >> uj)) return std::nullopt;
    sum += uj / 1e6;
    is_any = true;
  }
  return is_any ? std::optional(sum) : std::nullopt;
}

}  // namespace

EnergyCounter::EnergyCounter(Energy of, std::string powercap)
    : nvml_(of == Energy::gpu ? std::make_unique<Nvml>() : nullptr),
      of_(of),
      powercap_(std::move(powercap)),
      last_(joules()) {}

EnergyCounter::~EnergyCounter() = default;

std::optional<double> EnergyCounter::joules() const {
  return of_ == Energy::gpu ? nvml_->joules() : package_joules(powercap_);
}

std::optional<double> EnergyCounter::take() {
  const std::optional<double> before = std::exchange(last_, joules());
  if (!before || !last_ || *last_ < *before) return std::nullopt;
  return *last_ - *before;
}

}  // namespace octet
