// Large copies between a device and a stream of bytes (a file), in pieces through two buffers of
// the host: one is copied while the other is read or written, and memory does not grow with the
// size.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "device/device.h"

namespace octet {

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
