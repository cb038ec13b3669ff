// Answers of `octet serve` to a path: who may ask, which end point it is, and errors as JSON.
#pragma once

#include <functional>
#include <string>

#include "base/log.h"
#include "cli/serve_http.h"
#include "cli/serve_reply.h"

namespace octet {

// True if a host, with or without a port, is this machine itself by its name alone.
bool is_loopback(std::string host);

struct ServeAccess {
  std::string token;  // that requests must bring; empty: none
};

class ServeApp {
 public:
  using Embed = std::function<Embeddings(const std::vector<std::string>& texts)>;

  // One of `engine` and `embed`: of a model that writes text, of an encoder. All outlive it.
  ServeApp(const ServedModel& model, ServeEngine* engine, Embed embed, ServeAccess access, Log log);

  HttpReply answer(const HttpRequest& request) const;
  // Answer to what HTTP itself refuses.
  static std::string refusal(int status);

 private:
  void check_access(const HttpRequest& request) const;
  HttpReply route(const HttpRequest& request) const;
  HttpReply post(const HttpRequest& request) const;
  HttpReply text(TextRequest request) const;
  OrderedJson models() const;

  const ServedModel& model_;
  ServeEngine* engine_;
  Embed embed_;
  ServeAccess access_;
  Log log_;
  int64_t created_ = 0;
};

}  // namespace octet
