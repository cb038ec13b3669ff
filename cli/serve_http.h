// HTTP/1.1 for `octet serve`, by cpp-httplib: connections, bodies, limits. Knows nothing of models.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace octet {

struct HttpRequest {
  std::string method, path, body;
  std::string authorization, content_type, host, origin;  // headers; "" where absent
};

struct HttpReply {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  std::string challenge = {};  // WWW-Authenticate
  // In place of a body: each call gives the next part, "" at the end. Destroyed with the reply,
  // also where the client went away.
  std::function<std::string()> next_part = {};
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                      // 0: a free one
  int connections = 128;                // at a time; more wait until one ends
  int64_t max_body = int64_t{4} << 20;  // bytes, unpacked
  double seconds = 600;                 // that a client may take to send a body
};

class HttpServer {
 public:
  // Answers each request, on a thread of its connection; also what HTTP itself refuses, as a reply
  // of this status. Neither throws.
  using Handler = std::function<HttpReply(const HttpRequest&)>;
  using Refusal = std::function<std::string(int status)>;  // a body

  // Binds the port. Throws Error{io} where it cannot.
  HttpServer(const HttpOptions& options, Handler handler, Refusal refusal);
  ~HttpServer();  // as stop()

  int port() const;
  // No connection begins; those that are open end with the reply that they are at.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace octet
