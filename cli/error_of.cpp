#include "cli/error_of.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <new>
#include <string>
#include <system_error>

#include "base/units.h"

namespace octet {
namespace {

// Nobody knows here what the memory was for, but what it was held against.
std::string out_of_memory_text() {
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? fmt::format("out of memory: this process may take {} in all (ulimit -v)",
                                  bytes_text(static_cast<double>(limit.rlim_cur)))
                    : "out of memory: the machine gives this process no more";
}

}  // namespace

Error error_of(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr)
    return {ErrorCode::device, out_of_memory_text()};
  const auto* of_system = dynamic_cast<const std::system_error*>(&thrown);
  if (of_system != nullptr && of_system->code() == std::errc::resource_unavailable_try_again)
    return {ErrorCode::device,
            fmt::format("out of threads (ulimit -u, ulimit -v): {}", thrown.what())};
  return {ErrorCode::internal, std::string(thrown.what())};
}

}  // namespace octet
