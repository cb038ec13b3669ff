// TCP connections between ranks: each call waits until a time that the caller gives, no longer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace octet::tcp {

using Clock = std::chrono::steady_clock;

// Owns a descriptor, which never blocks; -1: none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Takes connections for `address` at `port` (0: one that is free). Where the address is this
// machine's loopback, from this machine alone; else from all its networks. Throws Error{device}.
Socket listen_at(const std::string& address, int port);
int port_of(const Socket& listener);

// One attempt; without a connection `problem` says why.
Socket connect_to(const std::string& address, int port, Clock::time_point until,
                  std::string& problem);
// The next connection; none by then.
Socket accept_from(const Socket& listener, Clock::time_point until);

// True if all bytes went, or came, by then.
bool send_all(const Socket& socket, const void* data, size_t bytes, Clock::time_point until);
bool receive_all(const Socket& socket, void* data, size_t bytes, Clock::time_point until);
template <typename T>
bool send_value(const Socket& socket, const T& value, Clock::time_point until) {
  static_assert(std::is_trivially_copyable_v<T>);
  return send_all(socket, &value, sizeof(value), until);
}
template <typename T>
std::optional<T> receive_value(const Socket& socket, Clock::time_point until) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  return receive_all(socket, &value, sizeof(value), until) ? std::optional(value) : std::nullopt;
}

// Numeric addresses of a connection's ends: "10.0.0.7", "fe80::1"; "" where it has none.
std::string own_address(const Socket& socket);
std::string peer_address(const Socket& socket);
bool is_loopback(const std::string& numeric_address);
// Addresses at which other hosts may reach this one; then its loopback.
std::vector<std::string> addresses_of_this_host();

// True if what was sent has found no answer for so long, though the other end's system would give
// one whatever its program does: the connection is lost, or the other machine is.
bool is_unanswered(const Socket& socket, std::chrono::milliseconds time);

}  // namespace octet::tcp
