// The CPU as a device: memory is mapped, copies are memcpy, nothing is asynchronous.
#pragma once

#include "backends/cpu/common/isa.h"
#include "device/device.h"

namespace octet::cpu {

class CpuDevice : public Device {
 public:
  CpuDevice(Isa isa, int n_threads) : isa_(isa), n_threads_(n_threads) {}
  DeviceInfo info() const override;
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override;
  void copy_in(std::byte* to_device, const void* from_host, int64_t bytes) override;
  void copy_out(void* to_host, const std::byte* from_device, int64_t bytes) override;
  void copy_within(std::byte* to, const std::byte* from, int64_t bytes) override;
  void fill_zero(std::byte* on_device, int64_t bytes) override;
  void synchronize() override {}
  void record_timing_event(int index, Stream) override { timing_events_.set(index); }
  double ms_between(int from, int to) override { return timing_events_.ms_between(from, to); }

 private:
  Isa isa_;
  int n_threads_;
  HostTimingEvents timing_events_;
};

}  // namespace octet::cpu
