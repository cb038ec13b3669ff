// The one exception type (octet/error.h) with a message that is formatted, and the check for our
// own mistakes.
//
// Error: the user, the data or the machine is at fault. Its message is one line: what was expected,
// what came, where. CHECK(cond): we are at fault; throws Error{internal} with file and line, in
// release builds too.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "octet/error.h"

namespace octet {

int exit_code(ErrorCode code);

// throw Error(code, "expected {}, got {}", wanted, found);
template <typename... Args>
struct ErrorFormat {
  using type = fmt::format_string<Args...>;
};

template <typename First, typename... Rest>
Error::Error(ErrorCode code, typename ErrorFormat<First, Rest...>::type format, First&& first,
             Rest&&... rest)
    : Error(code, fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace octet

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::octet::check_failed(#condition, __FILE__, __LINE__))
