#include "cli/run_table.h"

#include <fmt/format.h>

namespace octet {

Table run_table() {
  return {{"recipe", "steps", "train_loss", "val_loss", "tokens_per_s", "planned_bytes",
           "peak_bytes", "state_bytes"},
          {}};
}

std::vector<std::string> run_row(const GlobalOptions& options, const std::string& recipe,
                                 const TrainResult& result) {
  const auto bytes = [&](int64_t n) {
    return options.json ? fmt::to_string(n) : bytes_text(static_cast<double>(n));
  };
  const auto loss = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.4f}", *value) : "";
  };
  return {recipe,
          fmt::to_string(result.step),
          loss(result.train_loss),
          loss(result.val_loss),
          result.was_finished ? "" : fmt::format("{:.0f}", result.tokens_per_s),
          bytes(result.planned_bytes),
          bytes(result.peak_bytes),
          bytes(result.state_bytes)};
}

}  // namespace octet
