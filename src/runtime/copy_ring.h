// Copies memory of a device out through a fixed ring of host memory, beside what the device
// computes.
//
// Two threads: one takes the bytes, which copies ahead as far as the ring has room; the other one
// computes, and waits before it overwrites what has not been copied yet. Sources of at most kSmall
// bytes are copied by begin() itself, so that they may be overwritten at once.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/device.h"

namespace octet {

class CopyRing {
 public:
  static constexpr int64_t kSmall = 4096;

  struct Source {
    const std::byte* from = nullptr;
    int64_t n_bytes = 0;
  };

  // `bytes` of host memory, allocated here once.
  CopyRing(Device& device, int64_t bytes);
  // Bytes that hold all of these at a time.
  static int64_t bytes_for(std::span<const Source> sources);

  // All that is queued has ended, and nobody takes.
  void begin(std::vector<Source> sources);
  // All bytes of source `index`, in one or more pieces; each once, in order. What sink throws goes
  // on to the caller.
  using Sink = std::function<void(std::span<const std::byte> piece)>;
  void take(size_t index, const Sink& sink);
  // Nothing more is taken, and nobody need wait.
  void end();

  bool is_copied() const;
  // Until all has been copied, or end() was called.
  void wait_copied() const;

 private:
  struct Piece {
    size_t source = 0;
    int64_t offset = 0, n_bytes = 0;  // in the ring
  };
  void copy_ahead();
  // The place where so many bytes are free, -1: nowhere.
  int64_t room_for(int64_t n_bytes) const;
  void tell_copied();

  Device& device_;
  int64_t bytes_, most_;  // of the ring, of a piece
  std::unique_ptr<DeviceMemory> ring_;
  std::vector<Source> sources_;
  std::vector<std::vector<std::byte>> small_;  // by source; empty for the others
  size_t next_ = 0;                            // source to be copied, and from where on
  int64_t next_byte_ = 0;
  std::deque<Piece> pieces_;  // copied and not taken, the oldest first

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_copied_ = true;
};

// Large copies between a device and a stream of bytes (a file), in pieces through two buffers of
// the host: one is copied while the other is read or written, and memory does not grow with the
// size.
class Staging {
 public:
  Staging(Device& device, int64_t piece_bytes);

  // Hands the bytes to `sink` in order. What sink throws goes on to the caller.
  using Sink = std::function<void(std::span<const std::byte> piece)>;
  void copy_out(const std::byte* from_device, int64_t n_bytes, const Sink& sink);

  // Has `source` fill each piece, in order; `first` is its place among the n_bytes.
  using Source = std::function<void(int64_t first, std::span<std::byte> piece)>;
  void copy_in(std::byte* to_device, int64_t n_bytes, const Source& source);

 private:
  std::span<std::byte> buffer(int64_t piece, int64_t n_bytes) const;

  Device& device_;
  int64_t piece_bytes_;
  std::unique_ptr<DeviceMemory> buffers_[2];
};

}  // namespace octet
