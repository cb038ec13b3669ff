#include "comm/tcp/hello.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

namespace octet::tcp {
namespace {

static_assert(std::is_trivially_copyable_v<Hello>);
constexpr size_t kMaxWaiting = 512;

}  // namespace

Doorkeeper::Heard Doorkeeper::hear(Waiting& guest) {
  while (guest.n_bytes < sizeof(Hello)) {
    const ssize_t n = ::recv(guest.socket.get(), guest.bytes.data() + guest.n_bytes,
                             sizeof(Hello) - guest.n_bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Heard::part;
    if (n <= 0) return Heard::nonsense;
    guest.n_bytes += static_cast<size_t>(n);
    const size_t n_magic = std::min(guest.n_bytes, kMagic.size());
    if (std::memcmp(guest.bytes.data(), kMagic.data(), n_magic) != 0) return Heard::nonsense;
  }
  return Heard::all;
}

void Doorkeeper::take_connections() {
  while (Socket socket = accept_from(listener_, Clock::now())) {
    if (waiting_.size() == kMaxWaiting) waiting_.erase(waiting_.begin());
    waiting_.push_back({.socket = std::move(socket), .until = Clock::now() + kStranger});
  }
}

void Doorkeeper::wait(Clock::time_point until) const {
  std::vector<pollfd> asked = {{listener_.get(), POLLIN, 0}};
  for (const Waiting& guest : waiting_) {
    asked.push_back({guest.socket.get(), POLLIN, 0});
    until = std::min(until, guest.until);
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  if (left > 0) ::poll(asked.data(), asked.size(), static_cast<int>(std::min<long>(left, 60'000)));
}

std::optional<Guest> Doorkeeper::next(Clock::time_point until) {
  while (true) {
    take_connections();
    for (auto guest = waiting_.begin(); guest != waiting_.end();) {
      const Heard heard = hear(*guest);
      if (heard == Heard::all) {
        Guest result{.socket = std::move(guest->socket), .hello = {}};
        std::memcpy(&result.hello, guest->bytes.data(), sizeof(Hello));
        waiting_.erase(guest);
        return result;
      }
      const bool is_late = Clock::now() >= guest->until;
      guest = heard == Heard::nonsense || is_late ? waiting_.erase(guest) : guest + 1;
    }
    if (Clock::now() >= until) return std::nullopt;
    wait(until);
  }
}

}  // namespace octet::tcp
