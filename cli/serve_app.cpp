#include "cli/serve_app.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "base/base64.h"
#include "base/error.h"
#include "cli/error_of.h"

namespace octet {

extern const std::string_view kServePage;

namespace {

constexpr std::array<std::string_view, 3> kPosts = {"/v1/completions", "/v1/chat/completions",
                                                    "/v1/embeddings"};

// In a time that depends on `given` alone.
bool same_secret(std::string_view given, std::string_view secret) {
  volatile unsigned char difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char own = secret[i % secret.size()];
    difference = difference | static_cast<unsigned char>(given[i] ^ own);
  }
  return difference == 0;
}

// "Bearer TOKEN", or "Basic ..." with the token as the password, as browsers ask for it.
std::string given_token(const std::string& authorization) {
  const std::string_view all = authorization;
  if (all.starts_with("Bearer ")) return authorization.substr(7);
  if (!all.starts_with("Basic ")) return "";
  const std::string pair = decode_base64(all.substr(6)).value_or("");
  return pair.substr(std::min(pair.size(), pair.find(':') + 1));
}

HttpReply error_reply(const ServeError& error) {
  HttpReply reply{.status = error.status, .body = json_line(error_json(error))};
  if (error.status == 401) reply.challenge = "Basic realm=\"octet\"";
  return reply;
}

// The parts of a text as they come. Who listens no more ends it.
class EventStream {
 public:
  EventStream(TextAnswer answer, std::shared_ptr<ServeReply> reply)
      : answer_(std::move(answer)),
        reply_(std::move(reply)),
        n_open_(answer_.request().texts.size()) {}
  ~EventStream() { reply_->cancel(); }
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  std::string next() {
    if (is_done_) return "";
    try {
      if (!has_begun_) {
        has_begun_ = true;
        if (std::string roles = answer_.begin(); !roles.empty()) return roles;
      }
      if (n_open_ > 0) {
        const TextEvent event = reply_->next();
        if (event.stop != Stop::none) --n_open_;
        return answer_.part(event);
      }
      is_done_ = true;
      return answer_.end();
    } catch (const ServeError& error) {
      is_done_ = true;
      return "data: " + json_line(error_json(error)) + "\n\n";
    }
  }

 private:
  TextAnswer answer_;
  std::shared_ptr<ServeReply> reply_;
  size_t n_open_;
  bool has_begun_ = false, is_done_ = false;
};

}  // namespace

ServeApp::ServeApp(const ServedModel& model, ServeEngine* engine, Embed embed, ServeAccess access,
                   Log log)
    : model_(model),
      engine_(engine),
      embed_(std::move(embed)),
      access_(std::move(access)),
      log_(std::move(log)),
      created_(std::time(nullptr)) {}

bool is_loopback(std::string host) {
  if (const size_t colon = host.rfind(':'); colon != host.npos && !host.ends_with(']'))
    host.resize(colon);
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

std::string ServeApp::refusal(int status) {
  const char* const message = status == 405   ? "no such method is known here"
                              : status == 408 ? "the body took too long"
                              : status == 413 ? "the body is longer than --max-body"
                              : status == 414 ? "the path is too long"
                              : status == 415 ? "expected Content-Type: application/json"
                              : status >= 500 ? "the server failed"
                                              : "expected a request of HTTP/1.1";
  return json_line(error_json({.status = status, .message = message}));
}

void ServeApp::check_access(const HttpRequest& request) const {
  if (!request.origin.empty() && !request.origin.ends_with("://" + request.host)) {
    throw ServeError{
        .status = 403, .message = "a page of another origin may not ask", .code = "other_origin"};
  }
  if (access_.token.empty()) {
    // Another name may be made to lead here, for pages of its owner.
    if (is_loopback(request.host)) return;
    throw ServeError{.status = 403,
                     .message = "expected a Host that is this machine; others need --token",
                     .code = "other_host"};
  }
  if (same_secret(given_token(request.authorization), access_.token)) return;
  throw ServeError{.status = 401,
                   .message = "expected the header Authorization: Bearer TOKEN",
                   .code = "invalid_token"};
}

HttpReply ServeApp::answer(const HttpRequest& request) const {
  HttpReply reply;
  try {
    check_access(request);
    reply = route(request);
  } catch (const ServeError& error) {
    reply = error_reply(error);
  } catch (const std::exception& thrown) {
    const Error error = error_of(thrown);
    const bool is_theirs =
        error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::bad_data;
    reply = error_reply({.status = is_theirs ? 400 : 500, .message = error.what()});
  }
  log_.info("{} {} {}", request.method, request.path, reply.status);
  return reply;
}

OrderedJson ServeApp::models() const {
  OrderedJson one = {{"id", model_.name},
                     {"object", "model"},
                     {"created", created_},
                     {"owned_by", "octet"},
                     {"max_model_len", model_.context}};
  if (model_.pictures != nullptr) one["max_images"] = model_.pictures->most();
  return {{"object", "list"}, {"data", OrderedJson::array({one})}};
}

HttpReply ServeApp::route(const HttpRequest& request) const {
  const bool is_post = request.method == "POST", is_get = request.method == "GET";
  const std::string& path = request.path;
  const bool takes_post = std::ranges::find(kPosts, path) != kPosts.end();
  const std::string of_model = "/v1/models/" + model_.name;
  const bool takes_get = path == "/" || path == "/v1/models" || path == of_model;
  if (takes_post && is_post) return post(request);
  if (takes_post || (takes_get && !is_get)) {
    throw ServeError{
        .status = 405,
        .message = fmt::format("expected {} for {}", takes_post ? "POST" : "GET", path)};
  }
  constexpr std::string_view kModels = "/v1/models/";
  if (path.starts_with(kModels) && !takes_get)
    throw not_served_error(path.substr(kModels.size(), 80), model_.name);
  if (!takes_get) {
    throw ServeError{.status = 404,
                     .message = fmt::format("no such path: {}; there are /v1/models, {}",
                                            path.substr(0, 80), fmt::join(kPosts, ", ")),
                     .code = "not_found"};
  }
  if (path == "/")
    return {.body = std::string(kServePage), .content_type = "text/html; charset=utf-8"};
  const OrderedJson all = models();
  return {.body = json_line(path == of_model ? all["data"][0] : all)};
}

HttpReply ServeApp::post(const HttpRequest& request) const {
  if (!request.content_type.starts_with("application/json"))
    throw ServeError{.status = 415, .message = "expected Content-Type: application/json"};
  const bool is_embedding = request.path == kPosts[2];
  if (is_embedding != (engine_ == nullptr)) {
    throw ServeError{
        .message = fmt::format("{}: the model '{}' {}", request.path, model_.name,
                               is_embedding ? "writes text and gives no vectors of texts: "
                                              "/v1/completions or /v1/chat/completions"
                                            : "is an encoder and writes no text: /v1/embeddings"),
        .param = "model",
        .code = "wrong_kind_of_model"};
  }
  if (is_embedding) {
    const EmbeddingRequest wanted = read_embedding(model_, request.body);
    const Embeddings rows = embed_(wanted.texts);
    if (rows.n_truncated > 0) {
      throw ServeError{.message = fmt::format("input: expected texts of at most {} tokens, got {} "
                                              "longer ones, the longest of {}",
                                              model_.context, rows.n_truncated, rows.longest),
                       .param = "input",
                       .code = "context_length_exceeded"};
    }
    return {.body = json_line(embeddings_json(model_, wanted, rows))};
  }
  return text(request.path == kPosts[0] ? read_completion(model_, request.body)
                                        : read_chat(model_, request.body));
}

HttpReply ServeApp::text(TextRequest request) const {
  std::shared_ptr<ServeReply> reply = engine_->submit(request.texts);
  size_t n_open = request.texts.size();
  const bool streams = request.streams;
  TextAnswer answer(model_, std::move(request));
  if (streams) {
    const auto stream = std::make_shared<EventStream>(std::move(answer), std::move(reply));
    return {.content_type = "text/event-stream", .next_part = [stream] { return stream->next(); }};
  }
  while (n_open > 0) {
    TextEvent event = reply->next();
    if (event.stop != Stop::none) --n_open;
    answer.add(std::move(event));
  }
  return {.body = json_line(answer.whole())};
}

}  // namespace octet
