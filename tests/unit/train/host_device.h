// A device of plain memory, for tests that run no kernels.
#pragma once

#include <cstring>
#include <vector>

#include "device/device.h"

namespace octet::test {

class HostMemory : public DeviceMemory {
 public:
  explicit HostMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes), std::byte{0xA5}) {}
  std::byte* data() override { return bytes_.data(); }
  int64_t bytes() const override { return static_cast<int64_t>(bytes_.size()); }

 private:
  std::vector<std::byte> bytes_;  // begins poisoned
};

class HostDevice : public Device {
 public:
  DeviceInfo info() const override {
    return {.name = "host", .memory_bytes = int64_t{1} << 40, .n_threads = 2};
  }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    return std::make_unique<HostMemory>(bytes);
  }
  void copy_in(std::byte* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy_out(void* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy_within(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memmove(to, from, static_cast<size_t>(bytes));
  }
  void fill_zero(std::byte* at, int64_t bytes) override {
    std::memset(at, 0, static_cast<size_t>(bytes));
  }
  void synchronize() override {}
  void record_timing_event(int index, Stream) override { timing_events_.set(index); }
  double ms_between(int from, int to) override { return timing_events_.ms_between(from, to); }

 private:
  HostTimingEvents timing_events_;
};

}  // namespace octet::test
