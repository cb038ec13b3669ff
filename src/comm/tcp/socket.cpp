#include "comm/tcp/socket.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace octet::tcp {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Addresses that a name stands for; `problem` where it stands for nothing.
Addresses resolve(const std::string& address, int port, std::string& problem) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (error != 0) problem = ::gai_strerror(error);
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

Socket new_socket(int family) {
  return Socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_option(const Socket& socket, int level, int name, int value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof(value));
}

// Small messages go at once; a connection that nothing travels on is asked for life.
Socket prepared(Socket socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  return socket;
}

// False when the time is up.
bool wait_for(const Socket& socket, short events, Clock::time_point until) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count() + 1;
    if (left <= 0) return false;
    pollfd asked{socket.get(), events, 0};
    const int n = ::poll(&asked, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

bool is_transient(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

std::string numeric(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST] = {};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof(host),
                    nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  const std::string text = host;
  constexpr std::string_view kMapped = "::ffff:";
  return text.starts_with(kMapped) ? text.substr(kMapped.size()) : text;
}

template <typename Ask>
std::string address_by(const Socket& socket, const Ask& ask) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (ask(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  return numeric(address, length);
}

// All networks, of both kinds where the machine has both.
Socket bind_to_all(int port) {
  Socket both = new_socket(AF_INET6);
  if (both) {
    set_option(both, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    set_option(both, SOL_SOCKET, SO_REUSEADDR, 1);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(port));
    if (::bind(both.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0) return both;
    if (errno == EADDRINUSE || errno == EACCES) return {};
  }
  Socket one = new_socket(AF_INET);
  set_option(one, SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<uint16_t>(port));
  if (one && ::bind(one.get(), reinterpret_cast<sockaddr*>(&any), sizeof(any)) == 0) return one;
  return {};
}

Socket bind_to(const addrinfo& address) {
  Socket socket = new_socket(address.ai_family);
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (socket && ::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  return {};
}

std::string address_text(const addrinfo& address) {
  sockaddr_storage copy{};
  std::memcpy(&copy, address.ai_addr, address.ai_addrlen);
  return numeric(copy, address.ai_addrlen);
}

Socket try_connect(const addrinfo& address, Clock::time_point until, std::string& problem) {
  Socket socket = new_socket(address.ai_family);
  int error = 0;
  if (!socket ||
      (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS)) {
    error = errno;
  } else if (!wait_for(socket, POLLOUT, until)) {
    error = ETIMEDOUT;
  } else {
    socklen_t length = sizeof(error);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error == 0) return prepared(std::move(socket));
  problem = std::strerror(error);
  return {};
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

Socket listen_at(const std::string& address, int port) {
  std::string problem;
  const Addresses found = resolve(address, port, problem);
  if (!found)
    throw Error(ErrorCode::device, "[ranks] expected the address of rank 0, got '{}' ({})", address,
                problem);
  const std::string numeric_address = address_text(*found);
  const bool is_local = numeric_address == "127.0.0.1" || numeric_address == "::1";
  Socket socket = is_local ? bind_to(*found) : bind_to_all(port);
  if (!socket || ::listen(socket.get(), SOMAXCONN) != 0)
    throw Error(ErrorCode::device,
                "[ranks] cannot take connections at port {}: {} (choose another)", port,
                std::strerror(errno));
  return socket;
}

int port_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  CHECK(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Socket connect_to(const std::string& address, int port, Clock::time_point until,
                  std::string& problem) {
  const Addresses found = resolve(address, port, problem);
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    Socket socket = try_connect(*one, until, problem);
    if (socket) return socket;
  }
  return {};
}

std::vector<std::string> addresses_of_this_host() {
  std::vector<std::string> outside, inside;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {"127.0.0.1"};
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const bool is_v4 = one->ifa_addr->sa_family == AF_INET;
    if (!is_v4 && one->ifa_addr->sa_family != AF_INET6) continue;
    sockaddr_storage copy{};
    const socklen_t length = is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&copy, one->ifa_addr, length);
    const std::string text = numeric(copy, length);
    if (text.find('%') != text.npos) continue;  // of one link alone
    (is_loopback(text) ? inside : outside).push_back(text);
  }
  ::freeifaddrs(all);
  outside.insert(outside.end(), inside.begin(), inside.end());
  return outside;
}

Socket accept_from(const Socket& listener, Clock::time_point until) {
  while (wait_for(listener, POLLIN, until)) {
    Socket socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) return prepared(std::move(socket));
  }
  return {};
}

bool send_all(const Socket& socket, const void* data, size_t bytes, Clock::time_point until) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(socket.get(), at, bytes, MSG_NOSIGNAL);
    if (n < 0 && !is_transient(errno)) return false;
    if (n < 0 && !wait_for(socket, POLLOUT, until)) return false;
    if (n > 0) at += n, bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(const Socket& socket, void* data, size_t bytes, Clock::time_point until) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(socket.get(), at, bytes, 0);
    if (n == 0 || (n < 0 && !is_transient(errno))) return false;
    if (n < 0 && !wait_for(socket, POLLIN, until)) return false;
    if (n > 0) at += n, bytes -= static_cast<size_t>(n);
  }
  return true;
}

std::string own_address(const Socket& socket) {
  return address_by(socket, ::getsockname);
}

std::string peer_address(const Socket& socket) {
  return address_by(socket, ::getpeername);
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1";
}

bool is_unanswered(const Socket& socket, std::chrono::milliseconds time) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return true;
  // A program that does not read is asked again and again too, but its system answers.
  constexpr int kUnanswered = 3;
  return info.tcpi_retransmits + info.tcpi_probes >= kUnanswered &&
         info.tcpi_last_ack_recv > time.count();
}

}  // namespace octet::tcp
