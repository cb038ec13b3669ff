// The device of a call, where the caller's is another one, perhaps.
#pragma once

#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    check(cudaGetDevice(&before_), "asking for the device");
    if (before_ != device) check(cudaSetDevice(device), "choosing the device");
    is_other_ = before_ != device;
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope() {
    if (is_other_) cudaSetDevice(before_);
  }

 private:
  int before_ = 0;
  bool is_other_ = false;
};

}  // namespace octet::cuda
