// State that the module's C interface shares: the one context of the process.
#pragma once

#include <exception>
#include <string>

#include "backends/cuda/launch/context.h"
#include "backends/cuda/launch/kernel.h"

namespace octet::cuda {

Context& context();

// Until the compute stream, and that of transfers where it is asked for, has ended its work.
enum class Streams : uint8_t { compute, both };
void await(Streams streams);

// The device of a call, where the caller's is another one, perhaps.
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

// Errors across the module's C interfaces: exceptions become a code and a text of the thread.
//
// Text of the last call of this thread that failed.
inline std::string& error_text() {
  static thread_local std::string text;
  return text;
}

// 0, or 1 where f threw.
template <typename F>
int guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (const std::exception& error) {
    error_text() = error.what();
    return 1;
  }
}

}  // namespace octet::cuda
