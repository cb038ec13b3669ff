// A request that is refused, as OpenAI's API tells it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/ordered_json.h"

namespace octet {

struct ServeError {
  int status = 400;
  std::string message;
  std::string param = {};  // the field at fault
  std::string code = {};
};

// {"error": {"message", "type", "param", "code"}}
inline OrderedJson error_json(const ServeError& error) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
  };
  const char* const type = error.status == 401   ? "authentication_error"
                           : error.status >= 500 ? "server_error"
                                                 : "invalid_request_error";
  return {{"error",
           {{"message", error.message},
            {"type", type},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

inline ServeError not_served_error(std::string_view asked, std::string_view served) {
  return {.status = 404,
          .message = fmt::format("the model '{}' is not served here; '{}' is", asked, served),
          .param = "model",
          .code = "model_not_found"};
}
inline ServeError closing_error() {
  return {.status = 503, .message = "the server is shutting down"};
}
inline ServeError late_error(double seconds) {
  return {.status = 504,
          .message = fmt::format("expected an answer within {} seconds, got none", seconds),
          .code = "timeout"};
}

}  // namespace octet
