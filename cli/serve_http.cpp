#include "cli/serve_http.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/error.h"

namespace octet {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kIdleSeconds = 15, kReadSeconds = 30, kBacklog = 512;
// Bytes that are read of a body that is refused: a connection that closes before all is read is
// reset, and its client sees no answer.
constexpr int64_t kDropped = 1 << 20;

// A thread a connection, and no more connections than threads: accepting waits for a free one.
class ConnectionThreads : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(int n) : n_free_(n) {
    for (int i = 0; i < n; ++i) threads_.emplace_back([this] { work(); });
  }

  void enqueue(std::function<void()> task) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_free_ > 0; });
    --n_free_;
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
      ++n_free_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  int n_free_;
  bool ends_ = false;
};

int port_of(int socket, bool of_peer) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  if ((of_peer ? ::getpeername(socket, at, &size) : ::getsockname(socket, at, &size)) != 0)
    return -1;
  if (address.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in*>(at)->sin_port);
  return address.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6*>(at)->sin6_port)
                                       : -1;
}

// Connections of this port that wait for a request find the end of input.
void end_idle_connections(int port) {
  constexpr int kMaxDescriptor = 65536;
  for (int socket = 3; socket < std::min<int>(kMaxDescriptor, ::getdtablesize()); ++socket) {
    if (port_of(socket, false) == port && port_of(socket, true) >= 0) ::shutdown(socket, SHUT_RD);
  }
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, Handler handler, Refusal refusal)
      : options_(options), handler_(std::move(handler)), refusal_(std::move(refusal)) {
    set_limits();
    add_handlers();
    port_ = options.port;
    const bool is_bound = options.port == 0 ? (port_ = server_.bind_to_any_port(options.host)) > 0
                                            : server_.bind_to_port(options.host, options.port);
    if (!is_bound) {
      throw Error(ErrorCode::io, "--host, --port: expected an address that is free, got {}:{}",
                  options.host, options.port);
    }
    // Clients that come at once wait here, not a second for another try.
    ::listen(listening_, kBacklog);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  ~Impl() { stop(); }

  int port() const { return port_; }

  void stop() {
    if (!thread_.joinable()) return;
    // The library breaks off what is being written; whoever does not read has its own limit.
    while (n_streams_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    server_.stop();
    std::atomic<bool> is_done = false;
    std::thread closer([&] {
      while (!is_done) {
        end_idle_connections(port_);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    thread_.join();
    is_done = true;
    closer.join();
  }

 private:
  void set_limits() {
    server_.new_task_queue = [this] { return new ConnectionThreads(options_.connections); };
    server_.set_payload_max_length(static_cast<size_t>(options_.max_body));
    server_.set_keep_alive_max_count(1'000'000).set_keep_alive_timeout(kIdleSeconds);
    server_.set_read_timeout(kReadSeconds).set_write_timeout(kReadSeconds).set_tcp_nodelay(true);
    server_.set_socket_options([this](socket_t socket) {
      const int on = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      listening_ = socket;
    });
  }

  void add_handlers() {
    constexpr const char* kAny = ".*";
    const auto without_body = [this](const httplib::Request& request, httplib::Response& to) {
      write(handler_(read(request)), to);
    };
    const auto with_body = [this](const httplib::Request& request, httplib::Response& to,
                                  const httplib::ContentReader& reader) {
      answer(request, to, reader);
    };
    server_.Get(kAny, without_body).Options(kAny, without_body);
    server_.Post(kAny, with_body).Put(kAny, with_body).Patch(kAny, with_body);
    server_.Delete(kAny, with_body);
    // Nobody bounds the body of other methods.
    server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& to) {
      for (const char* method : {"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
        if (request.method == method) return httplib::Server::HandlerResponse::Unhandled;
      refuse(405, to);
      return httplib::Server::HandlerResponse::Handled;
    });
    server_.set_error_handler([this](const httplib::Request&, httplib::Response& to) {
      if (to.body.empty()) refuse(to.status, to);
    });
  }

  static HttpRequest read(const httplib::Request& request) {
    return {.method = request.method,
            .path = request.path,
            .body = {},
            .authorization = request.get_header_value("Authorization"),
            .content_type = request.get_header_value("Content-Type"),
            .host = request.get_header_value("Host"),
            .origin = request.get_header_value("Origin")};
  }

  // The unread rest of a body would be the next request: such a connection ends.
  void refuse(int status, httplib::Response& to) {
    to.status = status;
    to.set_header("Connection", "close");
    to.set_content(refusal_(status), "application/json");
  }

  void answer(const httplib::Request& request, httplib::Response& to,
              const httplib::ContentReader& reader) {
    const auto begin = Clock::now();
    const auto is_late = [&] {
      return std::chrono::duration<double>(Clock::now() - begin).count() > options_.seconds;
    };
    int64_t dropped = 0;
    const auto drop = [&](size_t n) { return (dropped += static_cast<int64_t>(n)) <= kDropped; };
    if (request.is_multipart_form_data()) {
      reader([](const auto&) { return true; },
             [&](const char*, size_t n) { return !is_late() && drop(n); });
      return refuse(415, to);
    }
    HttpRequest mine = read(request);
    int refused = 0;
    const bool is_read = reader([&](const char* data, size_t n) {
      if (is_late())
        refused = 408;
      else if (std::ssize(mine.body) + static_cast<int64_t>(n) > options_.max_body)
        refused = 413;
      if (refused == 0) mine.body.append(data, n);
      return refused == 0 || (refused != 408 && drop(n));
    });
    if (refused != 0 || !is_read) {
      const int status = to.status >= 400 ? to.status : 400;
      return refuse(refused != 0 ? refused : status, to);
    }
    write(handler_(mine), to);
  }

  void write(HttpReply reply, httplib::Response& to) {
    to.status = reply.status;
    to.set_header("X-Content-Type-Options", "nosniff");
    to.set_header("Cache-Control", "no-store");
    if (!reply.challenge.empty()) to.set_header("WWW-Authenticate", reply.challenge);
    if (reply.status == 503) to.set_header("Retry-After", "1");
    if (!reply.next_part) return to.set_content(reply.body, reply.content_type);
    ++n_streams_;
    to.set_chunked_content_provider(
        reply.content_type,
        [next = std::move(reply.next_part)](size_t, httplib::DataSink& sink) {
          const std::string part = next();
          if (!part.empty()) return sink.write(part.data(), part.size());
          sink.done();
          return true;
        },
        [this](bool) { --n_streams_; });
  }

  HttpOptions options_;
  Handler handler_;
  Refusal refusal_;
  httplib::Server server_;
  int port_ = 0, listening_ = -1;
  std::thread thread_;
  std::atomic<int> n_streams_ = 0;  // replies in parts that are being written
};

HttpServer::HttpServer(const HttpOptions& options, Handler handler, Refusal refusal)
    : impl_(std::make_unique<Impl>(options, std::move(handler), std::move(refusal))) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return impl_->port();
}

void HttpServer::stop() {
  impl_->stop();
}

}  // namespace octet
