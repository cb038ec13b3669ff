// The CPU back end: a device, and the catalogue of its kernels.
#pragma once

#include <memory>

#include "backends/cpu/isa.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "plan/catalogue.h"

namespace octet::cpu {

struct Backend {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Catalogue> catalogue;
};

// n_threads 0: every core that the process may use. Isa::scalar runs the reference kernels only.
// Calls limit_isa.
Backend make_backend(int n_threads, Isa isa);

}  // namespace octet::cpu
