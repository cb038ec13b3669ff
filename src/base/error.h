// The one exception type, and the check for our own mistakes.
//
// Error: the user, the data or the machine is at fault. Its message is one line: what was expected,
// what came, where. CHECK(cond): we are at fault; throws Error{internal} with file and line, in
// release builds too.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace octet {

// Each code has one exit status of the program (see exit_code).
enum class ErrorCode {
  invalid_argument,  // usage, configuration, graph: 2
  bad_data,          // text, shards, models, checkpoints: 3
  io,                // a file could not be read or written: 3
  numerics,          // loss not finite for too long: 4
  device,            // device missing or out of memory: 5
  internal,          // a CHECK failed: 1
};

int exit_code(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  template <typename First, typename... Rest>
  Error(ErrorCode code, fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : Error(code, fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace octet

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::octet::check_failed(#condition, __FILE__, __LINE__))
