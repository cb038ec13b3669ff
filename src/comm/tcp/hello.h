// The first words on a connection between ranks, and who says them at a port.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/tcp/socket.h"

namespace octet::tcp {

inline constexpr std::array<char, 8> kMagic = {'o', 'c', 't', 'e', 't', '-', 'r', '\n'};
inline constexpr uint32_t kProtocol = 1;  // changes with what ranks say to each other
inline constexpr std::chrono::milliseconds kStranger{5000};

enum class Link : uint32_t { star, mesh };

struct Hello {
  std::array<char, 8> magic = kMagic;
  uint32_t protocol = kProtocol;
  Link link = Link::star;
  int32_t rank = 0, size = 0;
  uint64_t token = 0;
};

struct Guest {
  Socket socket;
  Hello hello;
};

// Takes connections and hears them all at the same time, so that strangers who say nothing, or
// something else, hold up nobody. Such a connection is closed at its first wrong byte, after
// kStranger, or where too many wait.
class Doorkeeper {
 public:
  explicit Doorkeeper(const Socket& listener) : listener_(listener) {}
  // The next that has said hello; nothing by then.
  std::optional<Guest> next(Clock::time_point until);

 private:
  struct Waiting {
    Socket socket;
    Clock::time_point until;
    std::array<std::byte, sizeof(Hello)> bytes = {};
    size_t n_bytes = 0;
  };
  enum class Heard { part, all, nonsense };

  static Heard hear(Waiting& guest);
  void take_connections();
  // Until a connection comes or says something.
  void wait(Clock::time_point until) const;

  const Socket& listener_;
  std::vector<Waiting> waiting_;
};

}  // namespace octet::tcp
