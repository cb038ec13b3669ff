// The one exception of Octet. Its message is one line: what was expected, what came, where, as the
// program prints it behind "octet: ".
#pragma once

#include <stdexcept>
#include <string>

namespace octet {

// Each has one exit status of the program.
enum class ErrorCode {
  invalid_argument,  // usage, configuration, graph: 2
  bad_data,          // text, shards, models, checkpoints: 3
  io,                // a file could not be read or written: 3
  numerics,          // loss not finite for too long: 4
  device,            // device missing or out of memory: 5
  internal,          // a mistake of Octet itself: 1
  rank_lost,         // another rank was killed or is gone; `octet train --resume` goes on: 75
};

// `type` is a format string for these arguments: of Octet's own sources alone (base/error.h).
template <typename... Args>
struct ErrorFormat;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  template <typename First, typename... Rest>
  Error(ErrorCode code, typename ErrorFormat<First, Rest...>::type format, First&& first,
        Rest&&... rest);
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace octet
