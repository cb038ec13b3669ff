#include "cli/tokenize_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/printable.h"

namespace octet {

std::function<void(const TokenizeProgress&)> tokenize_painter(const GlobalOptions& options) {
  if (options.quiet || ::isatty(STDERR_FILENO) != 1) return {};
  return [](const TokenizeProgress& now) {
    clear_line();
    if (now.is_done) return;
    constexpr double kMega = 1e6;
    write_err(fmt::format("tokenizing {}: {:.1f} of {:.1f} MB, {} tokens", printable(now.name),
                          static_cast<double>(now.n_bytes) / kMega,
                          static_cast<double>(now.n_bytes_in_all) / kMega, now.n_tokens));
  };
}

}  // namespace octet
