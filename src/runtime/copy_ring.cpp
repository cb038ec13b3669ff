#include "runtime/copy_ring.h"

#include <algorithm>
#include <future>
#include <utility>

#include "base/error.h"
#include "base/integer.h"

namespace octet {
namespace {

constexpr int64_t kMaxPiece = int64_t{16} << 20;
constexpr int64_t kPlace = 64;  // pieces begin at multiples of it

int64_t padded(int64_t n_bytes) {
  return ceil_div(n_bytes, kPlace) * kPlace;
}

}  // namespace

// At least four pieces, so that some are copied while others are taken.
CopyRing::CopyRing(Device& device, int64_t bytes)
    : device_(device),
      bytes_(std::max(padded(bytes), 4 * kPlace)),
      most_(std::min(kMaxPiece, bytes_ / 4 / kPlace * kPlace)),
      ring_(device.allocate_host(bytes_)) {}

int64_t CopyRing::bytes_for(std::span<const Source> sources) {
  int64_t total = 0;
  for (const Source& source : sources) {
    if (source.n_bytes > kSmall) total += padded(source.n_bytes);
  }
  return total;
}

void CopyRing::begin(std::vector<Source> sources) {
  sources_ = std::move(sources);
  small_.assign(sources_.size(), {});
  pieces_.clear();
  next_ = 0;
  next_byte_ = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    if (source.n_bytes > kSmall) continue;
    small_[i].resize(static_cast<size_t>(source.n_bytes));
    if (source.n_bytes > 0) device_.copy_out(small_[i].data(), source.from, source.n_bytes);
  }
  const std::lock_guard lock(mutex_);
  is_copied_ = false;
}

int64_t CopyRing::room_for(int64_t n_bytes) const {
  if (pieces_.empty()) return 0;
  const int64_t first = pieces_.front().offset;
  const int64_t end = pieces_.back().offset + padded(pieces_.back().n_bytes);
  const bool is_wrapped = pieces_.back().offset < first;
  if (is_wrapped) return first - end >= padded(n_bytes) ? end : -1;
  if (bytes_ - end >= padded(n_bytes)) return end;
  return first >= padded(n_bytes) ? 0 : -1;
}

void CopyRing::copy_ahead() {
  for (; next_ < sources_.size(); ++next_, next_byte_ = 0) {
    const Source& source = sources_[next_];
    if (source.n_bytes <= kSmall) continue;
    while (next_byte_ < source.n_bytes) {
      const int64_t n_bytes = std::min(most_, source.n_bytes - next_byte_);
      const int64_t at = room_for(n_bytes);
      if (at < 0) return;
      device_.copy_out_on_side_stream(ring_->data() + at, source.from + next_byte_, n_bytes);
      pieces_.push_back({next_, at, n_bytes});
      next_byte_ += n_bytes;
    }
  }
  tell_copied();
}

void CopyRing::take(size_t index, const Sink& sink) {
  copy_ahead();
  if (!small_[index].empty()) return sink(small_[index]);
  for (int64_t taken = 0; taken < sources_[index].n_bytes;) {
    const Piece piece = pieces_.front();
    CHECK(piece.source == index);
    sink({ring_->data() + piece.offset, static_cast<size_t>(piece.n_bytes)});
    pieces_.pop_front();
    taken += piece.n_bytes;
    copy_ahead();
  }
}

void CopyRing::tell_copied() {
  const std::lock_guard lock(mutex_);
  is_copied_ = true;
  changed_.notify_all();
}

void CopyRing::end() {
  tell_copied();
}

bool CopyRing::is_copied() const {
  const std::lock_guard lock(mutex_);
  return is_copied_;
}

void CopyRing::wait_copied() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_copied_; });
}

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
