#include "runtime/staging.h"

#include <algorithm>
#include <future>

#include "base/integer.h"

namespace octet {

Staging::Staging(Device& device, int64_t piece_bytes) : device_(device), piece_bytes_(piece_bytes) {
  for (auto& buffer : buffers_) buffer = device.allocate_host(piece_bytes);
}

std::span<std::byte> Staging::buffer(int64_t piece, int64_t n_bytes) const {
  const int64_t n = std::min(piece_bytes_, n_bytes - piece * piece_bytes_);
  return {buffers_[piece % 2]->data(), static_cast<size_t>(n)};
}

void Staging::copy_out(const std::byte* from_device, int64_t n_bytes, const Sink& sink) {
  const auto fetch = [&](int64_t piece) {
    const auto to = buffer(piece, n_bytes);
    device_.copy_out(to.data(), from_device + piece * piece_bytes_, std::ssize(to));
  };
  const int64_t n_pieces = ceil_div(n_bytes, piece_bytes_);
  if (n_pieces > 0) fetch(0);
  for (int64_t piece = 0; piece < n_pieces; ++piece) {
    // Its destructor waits, so that nothing is being copied when sink throws.
    std::future<void> next;
    if (piece + 1 < n_pieces) next = std::async(std::launch::async, fetch, piece + 1);
    sink(buffer(piece, n_bytes));
    if (next.valid()) next.get();
  }
}

void Staging::copy_in(std::byte* to_device, int64_t n_bytes, const Source& source) {
  const auto send = [&](int64_t piece) {
    const auto from = buffer(piece, n_bytes);
    device_.copy_in(to_device + piece * piece_bytes_, from.data(), std::ssize(from));
  };
  const int64_t n_pieces = ceil_div(n_bytes, piece_bytes_);
  if (n_pieces > 0) source(0, buffer(0, n_bytes));
  for (int64_t piece = 0; piece < n_pieces; ++piece) {
    std::future<void> sent;
    if (piece + 1 < n_pieces) {
      sent = std::async(std::launch::async, send, piece);
      source((piece + 1) * piece_bytes_, buffer(piece + 1, n_bytes));
      sent.get();
    } else {
      send(piece);
    }
  }
}

}  // namespace octet
