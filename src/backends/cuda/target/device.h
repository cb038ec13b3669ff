// The GPU behind the device interface.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/target/module.h"
#include "device/device.h"

namespace octet::cuda {

class CudaDevice : public Device {
 public:
  // n_threads: of the host, for what it prepares.
  CudaDevice(std::shared_ptr<Module> module, const OctetCudaOptions& options, int n_threads);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  DeviceInfo info() const override;
  void enter() override;
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override;
  std::unique_ptr<DeviceMemory> allocate_host(int64_t bytes) override;
  void copy_in(std::byte* to_device, const void* from_host, int64_t bytes) override;
  void copy_in_all(const std::vector<HostBytes>& parts) override;
  void copy_out(void* to_host, const std::byte* from_device, int64_t bytes) override;
  void set_workspace(DeviceMemory* memory) override;
  void copy_out_on_side_stream(void* to_host, const std::byte* from_device, int64_t bytes) override;
  void copy_within(std::byte* to, const std::byte* from, int64_t bytes) override;
  void fill_zero(std::byte* on_device, int64_t bytes) override;
  void fill_nan_where(const std::byte* flag, std::span<const DeviceRange> ranges) override;
  void borrow_stream(void* stream) override;
  void return_stream() override;
  void synchronize() override;
  void await_ranks(std::chrono::milliseconds patience) override;
  void signal(int index, Stream stream) override;
  void wait(int index, Stream stream) override;
  void record_timing_event(int index, Stream stream) override;
  double ms_between(int from, int to) override;
  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& launches) override;
  void join(const RankExchange& ranks) override;
  std::string transport() const override { return transport_; }
  int64_t ranks_a_host() const override {
    return n_local_ < ranks_.n_ranks && n_local_ > 1 ? n_local_ : 0;
  }
  DeviceLibrary rank_library() override;
  void connect(const RankExchange& ranks, const std::vector<DeviceMemory*>& shared) override;
  int64_t used_bytes() override;
  std::vector<DeviceLibrary> libraries() override;

  const OctetCudaInfo& details() const { return info_; }
  int capability() const { return 10 * info_.sm_major + info_.sm_minor; }

 private:
  void check(int status);
  void* event(std::vector<void*>& events, int index);
  // Part of join(): why the ranks of a host, as many as n_local_ becomes, do not all reach each
  // other's memory; empty: they do.
  std::string find_unreached();
  void join_by_nccl(const std::string& why);
  std::vector<uint8_t> gather_handles(const std::vector<DeviceMemory*>& shared) const;
  void call_join(const uint8_t* handles, const uint8_t* nccl_id);
  static bool look(void* device, int64_t progress);

  std::shared_ptr<Module> module_;
  OctetCudaInfo info_{};
  int n_threads_;
  std::vector<void*> timing_events_, events_;
  RankExchange ranks_;
  std::string transport_;
  int n_local_ = 1;                      // ranks of a host that reach each other's memory
  std::unique_ptr<DeviceMemory> board_;  // what other ranks read and write of this one
  std::mutex mutex_;
  std::exception_ptr failure_;  // what look() has met
};

}  // namespace octet::cuda
