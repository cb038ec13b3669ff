#include "comm/tcp/join.h"

#include <fmt/ranges.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <random>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "comm/tcp/hello.h"

namespace octet::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kRetry{100};

// Rank 0's answer on the star, and each rank's port for the mesh; text follows.
struct Answer {
  std::array<char, 8> magic = kMagic;
  uint32_t is_refused = 0, bytes = 0;
};

std::string seconds_text(milliseconds time) {
  return fmt::format("{:g} s", static_cast<double>(time.count()) / 1000);
}

void answer(const Socket& socket, bool is_refused, const std::string& text) {
  const Answer head{.is_refused = is_refused, .bytes = static_cast<uint32_t>(text.size())};
  const auto until = Clock::now() + kStranger;
  if (send_value(socket, head, until)) send_all(socket, text.data(), text.size(), until);
}

// The text; none where the connection closes or says something else. Throws what it refuses.
std::optional<std::string> read_answer(const Socket& socket, Clock::time_point until) {
  constexpr uint32_t kMaxBytes = 1 << 20;
  const auto head = receive_value<Answer>(socket, until);
  if (!head || head->magic != kMagic || head->bytes > kMaxBytes) return std::nullopt;
  std::string text(head->bytes, '\0');
  if (!receive_all(socket, text.data(), text.size(), until)) return std::nullopt;
  if (head->is_refused != 0) throw Error(ErrorCode::device, text);
  return text;
}

bool has_closed(const Socket& socket) {
  char byte = 0;
  return ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

// Fault of a rank that says hello to rank 0; "": none.
std::string fault_of(const Hello& hello, const Place& place, const std::vector<Socket>& star) {
  if (hello.protocol != kProtocol)
    return fmt::format("[ranks] rank {} is another version of octet than rank 0", hello.rank);
  if (hello.size != place.size)
    return fmt::format("[ranks] rank {} expects {} ranks, rank 0 {}", hello.rank, hello.size,
                       place.size);
  if (hello.rank < 1 || hello.rank >= place.size)
    return fmt::format("[ranks] expected ranks from 1 to {}, got {}", place.size - 1, hello.rank);
  const Socket& known = star[static_cast<size_t>(hello.rank)];
  if (known && !has_closed(known)) return fmt::format("[ranks] rank {} is there twice", hello.rank);
  return "";
}

std::vector<int> missing(const std::vector<Socket>& star) {
  std::vector<int> ranks;
  for (size_t rank = 1; rank < star.size(); ++rank) {
    if (!star[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

[[noreturn]] void refuse_all(const std::vector<Socket>& star, const std::string& why) {
  for (const Socket& socket : star) {
    if (socket) answer(socket, true, why);
  }
  throw Error(ErrorCode::device, why);
}

std::vector<Socket> gather_star(const Place& place, const Socket& listener) {
  const auto until = Clock::now() + place.patience;
  std::vector<Socket> star(static_cast<size_t>(place.size));
  Doorkeeper doorkeeper(listener);
  while (!missing(star).empty()) {
    std::optional<Guest> guest = doorkeeper.next(until);
    if (!guest) {
      refuse_all(star, fmt::format("[ranks] expected {} ranks at {}:{} within {}, without rank {}",
                                   place.size, place.addresses[0], place.port,
                                   seconds_text(place.patience), fmt::join(missing(star), ", ")));
    }
    const Hello& hello = guest->hello;
    if (hello.token != place.token || hello.link != Link::star) continue;
    const std::string fault = fault_of(hello, place, star);
    if (fault.empty()) {
      star[static_cast<size_t>(hello.rank)] = std::move(guest->socket);
      continue;
    }
    answer(guest->socket, true, fault);
    // A process too many changes nothing for those that belong together.
    if (!fault.ends_with("twice")) refuse_all(star, fault);
  }
  return star;
}

Hello hello_of(const Place& place, Link link) {
  return {.link = link, .rank = place.rank, .size = place.size, .token = place.token};
}

Socket find_root(const Place& place) {
  const auto until = Clock::now() + place.patience;
  std::string problem = "nothing answers";
  do {
    for (const std::string& address : place.addresses) {
      const auto attempt = std::min(until, Clock::now() + 4 * kStranger);
      Socket socket = connect_to(address, place.port, attempt, problem);
      if (socket && send_value(socket, hello_of(place, Link::star), attempt)) return socket;
    }
    std::this_thread::sleep_for(kRetry);
  } while (Clock::now() < until);
  throw Error(ErrorCode::device, "[ranks] rank {} found no rank 0 at {}:{} within {}: {}",
              place.rank, fmt::join(place.addresses, " or "), place.port,
              seconds_text(place.patience), problem);
}

// Addresses and ports where each rank takes connections for the mesh.
struct Listening {
  std::vector<std::string> addresses;
  std::vector<int> ports;
  uint64_t token = 0;

  std::string text() const {
    std::string text = std::to_string(token);
    for (size_t i = 0; i < ports.size(); ++i)
      text += fmt::format(" {} {}", addresses[i].empty() ? "-" : addresses[i], ports[i]);
    return text;
  }
  static Listening parse(const std::string& text, int size) {
    std::istringstream words(text);
    Listening result;
    words >> result.token;
    for (int i = 0; i < size; ++i) {
      words >> result.addresses.emplace_back() >> result.ports.emplace_back();
    }
    CHECK(!words.fail());
    return result;
  }
};

// Addresses as rank 0 sees them. Ranks of its own machine may have come over the loopback, which is
// no address for those of other machines.
Listening listening_of(const Place& place, const std::vector<Socket>& star,
                       const std::vector<int>& ports) {
  Listening result{.addresses = {place.addresses[0]}, .ports = ports};
  std::string outside;
  for (const Socket& socket : star) {
    if (socket && !is_loopback(peer_address(socket))) outside = own_address(socket);
  }
  for (size_t rank = 1; rank < star.size(); ++rank) {
    const std::string seen = peer_address(star[rank]);
    result.addresses.push_back(is_loopback(seen) && !outside.empty() ? outside : seen);
  }
  std::random_device random;
  result.token = (static_cast<uint64_t>(random()) << 32) | random();
  return result;
}

// Rank 0 learns all ports and tells all of them.
Listening exchange_ports(const Place& place, int own_port, std::vector<Socket>& star) {
  const auto until = Clock::now() + place.patience;
  if (place.rank != 0) {
    if (!send_value(star[0], own_port, until)) own_port = 0;
    const auto text = read_answer(star[0], until);
    if (!text)
      throw Error(ErrorCode::device,
                  "[ranks] rank {}: what listens at {}:{} ended the connection: rank 0 has ended, "
                  "or it is another program",
                  place.rank, place.addresses[0], place.port);
    return Listening::parse(*text, place.size);
  }
  std::vector<int> ports = {place.port};
  for (size_t rank = 1; rank < star.size(); ++rank) {
    const auto port = receive_value<int>(star[rank], Clock::now() + kStranger);
    if (!port) refuse_all(star, fmt::format("[ranks] rank {} ended while ranks joined", rank));
    ports.push_back(*port);
  }
  const Listening all = listening_of(place, star, ports);
  for (size_t rank = 1; rank < star.size(); ++rank) answer(star[rank], false, all.text());
  return all;
}

// Each rank connects to those before it, and takes the connections of those behind it.
std::vector<Socket> connect_all(const Place& place, const Socket& own_listener,
                                const Listening& all, const Control& control) {
  const auto until = Clock::now() + place.patience;
  std::vector<Socket> mesh(static_cast<size_t>(place.size));
  Hello own = hello_of(place, Link::mesh);
  own.token = all.token;
  for (int to = 0; to < place.rank; ++to) {
    const auto i = static_cast<size_t>(to);
    std::string problem = "it does not answer";
    while (!mesh[i] && Clock::now() < until) {
      control.throw_if_failed();
      mesh[i] = connect_to(all.addresses[i], all.ports[i], until, problem);
      if (!mesh[i]) std::this_thread::sleep_for(kRetry);
    }
    if (!mesh[i] || !send_value(mesh[i], own, until))
      throw Error(ErrorCode::device, "[ranks] rank {} reaches rank {} not at {}:{}: {}", place.rank,
                  to, all.addresses[i], all.ports[i], problem);
  }
  Doorkeeper doorkeeper(own_listener);
  for (int n_missing = place.size - 1 - place.rank; n_missing > 0;) {
    control.throw_if_failed();
    if (Clock::now() > until)
      throw Error(ErrorCode::device, "[ranks] rank {} waits for {} ranks to reach it (a firewall?)",
                  place.rank, n_missing);
    std::optional<Guest> guest = doorkeeper.next(Clock::now() + kRetry);
    if (!guest || guest->hello.token != all.token) continue;
    const Hello& hello = guest->hello;
    if (hello.link != Link::mesh || hello.rank <= place.rank || hello.rank >= place.size) continue;
    Socket& mine = mesh[static_cast<size_t>(hello.rank)];
    if (!mine) --n_missing;
    mine = std::move(guest->socket);
  }
  return mesh;
}

}  // namespace

std::vector<Socket> join_star(const Place& place, const Socket& listener) {
  if (place.rank == 0) return gather_star(place, listener);
  std::vector<Socket> star(1);
  star[0] = find_root(place);
  return star;
}

std::vector<Socket> join_mesh(const Place& place, const Socket& listener, std::vector<Socket> star,
                              const ControlOptions& options, std::unique_ptr<Control>& control) {
  Socket own;
  if (place.rank != 0) own = listen_at(place.addresses[0], 0);
  const Socket& taking = place.rank == 0 ? listener : own;
  Listening all = exchange_ports(place, port_of(taking), star);
  if (place.rank != 0) all.addresses[0] = peer_address(star[0]);
  control = std::make_unique<Control>(place.rank, std::move(star), options);
  try {
    return connect_all(place, taking, all, *control);
  } catch (const Error& error) {
    control->fail(place.rank, error.what());
    throw;
  }
}

}  // namespace octet::tcp
