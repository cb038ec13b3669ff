#include "cli/report_serve.h"

#include <httplib.h>

#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "cli/page.h"
#include "cli/report_data.h"
#include "cli/report_page.h"

namespace octet {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr size_t kServeThreads = 4;
constexpr int kServeTimeout = 5;  // seconds

// The runs as they were last read; threads of the server take turns.
class FollowedRuns {
 public:
  FollowedRuns(const std::vector<std::string>& paths, const GlobalOptions& options)
      : log_(make_log(options)) {
    for (const std::string& path : distinct_runs(paths, log_))
      readers_.push_back(std::make_unique<RunReader>(posix_files(), path, log_));
  }

  // Nothing where `after` is the newest version.
  std::optional<OrderedJson> json(const std::string& after = "") {
    const std::scoped_lock lock(mutex_);
    refresh();
    if (after == std::to_string(version_)) return std::nullopt;
    OrderedJson json = report_json(data());
    json["version"] = version_;
    return json;
  }

 private:
  void refresh() {
    bool is_new = false;
    for (const auto& reader : readers_) {
      try {
        is_new |= reader->refresh();
      } catch (const Error& error) {
        if (warned_ != error.what()) log_.warning("{}", error.what());
        warned_ = error.what();
      }
    }
    if (is_new) ++version_;
  }
  std::vector<RunData> data() const {
    std::vector<RunData> runs;
    for (const auto& reader : readers_) runs.push_back(reader->data());
    return runs;
  }

  Log log_;
  std::vector<std::unique_ptr<RunReader>> readers_;
  std::mutex mutex_;
  int64_t version_ = 1;
  std::string warned_;  // the last warning: every request would repeat it
};

bool is_own_host(const httplib::Request& request, int port) {
  const std::string host = request.get_header_value("Host");
  const std::string end = ":" + std::to_string(port);
  return host == kLoopback + end || host == "localhost" + end;
}

}  // namespace

void serve_report(const std::vector<std::string>& runs, int port, const GlobalOptions& options) {
  FollowedRuns followed(runs, options);
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kServeThreads); };
  server.set_read_timeout(kServeTimeout);
  server.set_write_timeout(kServeTimeout);
  server.set_keep_alive_timeout(kServeTimeout);
  server.set_payload_max_length(0);
  // A port that was just left can be had again; one that another process listens on cannot.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const int bound = port == 0 ? server.bind_to_any_port(kLoopback)
                              : (server.bind_to_port(kLoopback, port) ? port : -1);
  if (bound <= 0) {
    throw Error(ErrorCode::io, "[report] --serve: expected a free port, got {}, which is taken",
                port);
  }
  server.set_pre_routing_handler(
      [bound](const httplib::Request& request, httplib::Response& response) {
        if (is_own_host(request, bound)) return httplib::Server::HandlerResponse::Unhandled;
        response.status = 403;
        return httplib::Server::HandlerResponse::Handled;
      });
  server.Get("/", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(page_text("Octet report", followed.json().value(), {}, Polls::yes),
                         "text/html; charset=utf-8");
  });
  server.Get("/data.json", [&](const httplib::Request& request, httplib::Response& response) {
    const auto json = followed.json(request.get_param_value("after"));
    if (!json)
      response.status = 204;
    else
      response.set_content(page_json(*json), "application/json");
  });
  write_line("http://{}:{}/", kLoopback, bound);
  flush_output();
  server.listen_after_bind();
  throw Error(ErrorCode::io, "[report] --serve: the socket on port {} failed", bound);
}

}  // namespace octet
