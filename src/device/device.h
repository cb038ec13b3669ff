// Device on which memory lies and work runs, without any vendor's type. A back end implements it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rank_transport.h"

namespace octet {

// Streams that a device runs at the same time: each its own work, in order.
enum class Stream : uint8_t {
  compute,
  transfer,  // between ranks
};

struct DeviceInfo {
  std::string name;          // "cpu (avx512)"
  int64_t memory_bytes = 0;  // what one may plan with
  int n_threads = 1;
  bool reaches_peers = false;    // its kernels move data between ranks' devices
  bool is_asynchronous = false;  // it computes beside the host's threads
};

// A library that kernels come from.
struct DeviceLibrary {
  std::string name, version;  // version: empty where it is not used
  std::string problem;        // why it is not used, and what that costs
};

// One allocation, freed with the object. Contents are undefined.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() = 0;  // an address of the device; the host may touch it only on the CPU
  virtual int64_t bytes() const = 0;
};

// Bytes of the host on their way to the device.
struct HostBytes {
  std::byte* to;
  const void* from;
  int64_t bytes;
};

// Memory of the device.
struct DeviceRange {
  std::byte* data;
  int64_t bytes;
};

// How ranks tell each other what they need to know.
struct RankExchange {
  int rank = 0, n_ranks = 1, n_hosts = 1;
  // Number of neighbours on each of several hosts, where all have as many; 0: it is otherwise.
  int ranks_a_host = 0;
  bool is_flat = false;  // sums must be those of all ranks in their order
  RankTransport transport = RankTransport::automatic;
  // Gathers each rank's `bytes` bytes, in order.
  std::function<void(const void* own, void* all, int64_t bytes)> all_gather = {};
  // For any thread, while it waits for other ranks' devices (Group::look).
  std::function<void(int64_t progress)> look = {};
};

// Memory of the host itself.
class PlainHostMemory : public DeviceMemory {
 public:
  explicit PlainHostMemory(int64_t bytes)
      : bytes_(bytes), data_(new std::byte[static_cast<size_t>(bytes)]) {}
  std::byte* data() override { return data_.get(); }
  int64_t bytes() const override { return bytes_; }

 private:
  int64_t bytes_;
  std::unique_ptr<std::byte[]> data_;
};

// Launches that were captured once (a CUDA graph): replay runs them in the same order, at the same
// addresses.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void replay() = 0;
};

// Timing events of a device that runs work as it is called: readings of the host's clock.
class HostTimingEvents {
 public:
  void set(int index) {
    if (times_.size() <= static_cast<size_t>(index)) times_.resize(static_cast<size_t>(index) + 1);
    times_[static_cast<size_t>(index)] = std::chrono::steady_clock::now();
  }
  double ms_between(int from, int to) const {
    const auto span = times_.at(static_cast<size_t>(to)) - times_.at(static_cast<size_t>(from));
    return std::chrono::duration<double, std::milli>(span).count();
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> times_;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;
  // Makes this device the calling thread's, where a thread has one: before other calls of a thread
  // that may not be the one that opened the device, copy_in, copy_out and copy_out_on_side_stream
  // excepted.
  virtual void enter() {}
  // Throws Error(device) naming what was asked and what is there.
  // Aligned to 4,096 bytes.
  virtual std::unique_ptr<DeviceMemory> allocate(int64_t bytes) = 0;
  // Memory of the host that this device copies to and from at its best speed.
  virtual std::unique_ptr<DeviceMemory> allocate_host(int64_t bytes) {
    return std::make_unique<PlainHostMemory>(bytes);
  }
  // copy_in and copy_out wait for work in flight, of all streams, that touches the device's side.
  virtual void copy_in(std::byte* to_device, const void* from_host, int64_t bytes) = 0;
  virtual void copy_out(void* to_host, const std::byte* from_device, int64_t bytes) = 0;
  // Same as copy_in; what is small is queued and not waited for.
  virtual void copy_in_all(const std::vector<HostBytes>& parts) {
    for (const HostBytes& part : parts) copy_in(part.to, part.from, part.bytes);
  }
  // The workspace that preparing kernels may overwrite, for operands that they are timed on;
  // nullptr: none any more.
  virtual void set_workspace(DeviceMemory* memory) { static_cast<void>(memory); }
  // For any thread: copies on a side stream, and returns when it has come. Nothing that is
  // queued or running may write to the device's side.
  virtual void copy_out_on_side_stream(void* to_host, const std::byte* from_device, int64_t bytes) {
    copy_out(to_host, from_device, bytes);
  }
  virtual void copy_within(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual void fill_zero(std::byte* on_device, int64_t bytes) = 0;
  // NaN to all bf16, fp16 or f32 of the ranges where the bool at `flag`, on the device, is true.
  static constexpr size_t kMaxNanRanges = 32;
  virtual void fill_nan_where(const std::byte* flag, std::span<const DeviceRange> ranges) {
    static_cast<void>(flag), static_cast<void>(ranges);
    throw Error(ErrorCode::internal, "[device] expected a device that fills with NaN");
  }
  // Compute work is queued on this stream of the caller's (a cudaStream_t; nullptr: the default
  // one) until it is returned, behind the caller's own work. Nothing to do where a device has none.
  virtual void borrow_stream(void* stream) { static_cast<void>(stream); }
  virtual void return_stream() {}
  virtual void synchronize() = 0;
  // The same behind work that other ranks take part in. Throws Error(device) naming the ranks that
  // did not come where it takes longer than `patience`; what waited for them has been ended then,
  // and its results are of no use.
  virtual void await_ranks(std::chrono::milliseconds patience) {
    static_cast<void>(patience);
    synchronize();
  }
  // Event `index` (0, 1, ...) happens when what is queued so far on `stream` has ended; what is
  // queued on the other stream behind wait() begins after it. A device of one stream has nothing to
  // do. Both may stand in a captured graph, which must have waited for all that it queued.
  virtual void signal(int index, Stream stream) {
    static_cast<void>(index), static_cast<void>(stream);
  }
  virtual void wait(int index, Stream stream) {
    static_cast<void>(index), static_cast<void>(stream);
  }
  // Records timing event `index` (0, 1, ...) behind the work that is queued so far on a stream; an
  // event may be recorded again.
  virtual void record_timing_event(int index, Stream stream = Stream::compute) = 0;
  // Milliseconds between two timing events; waits for the later one.
  virtual double ms_between(int from, int to) = 0;
  // Captures what `launches` would run, without running it. nullptr where the device has no cheaper
  // way than to launch again.
  virtual std::unique_ptr<CapturedGraph> capture(const std::function<void()>& launches) {
    static_cast<void>(launches);
    return nullptr;
  }
  // All ranks together settle what moves data between them, and take what memory that needs.
  // Without it connect() does so. Throws Error(device) naming what a rank lacks.
  virtual void join(const RankExchange& ranks) { static_cast<void>(ranks); }
  // Transport that they settled on, in words; empty: there is nothing to settle.
  virtual std::string transport() const { return ""; }
  // And how many ranks of a host are added up first (CollectiveAttrs); 0: none.
  virtual int64_t ranks_a_host() const { return 0; }
  // NCCL's, whether it is used or not; without a name where the device knows none.
  virtual DeviceLibrary rank_library() { return {}; }
  // Lets kernels move data between memory of this device and the other ranks'; every rank calls it
  // with as much memory in the same order, before kernels that move between ranks are prepared.
  // Throws Error(device) where devices cannot reach each other.
  virtual void connect(const RankExchange& ranks, const std::vector<DeviceMemory*>& shared) {
    static_cast<void>(ranks), static_cast<void>(shared);
  }
  // Bytes of the device's memory in use, by anybody, as its driver counts; -1 where nobody counts.
  virtual int64_t used_bytes() { return -1; }
  // Libraries that are asked for at run time.
  virtual std::vector<DeviceLibrary> libraries() { return {}; }
};

}  // namespace octet
