// Needs of a program from a back end: where memory lies, and which kernels there are.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "device/device.h"
#include "plan/catalogue.h"

namespace octet {

// Members are destroyed in reverse: the catalogue's kernels go before the device and the pool.
struct Backend {
  std::unique_ptr<ThreadPool> pool;  // the host's threads, on every back end
  std::unique_ptr<Device> device;
  std::unique_ptr<Catalogue> catalogue;
};

}  // namespace octet
