#include "cli/run_table.h"

#include <fmt/format.h>

namespace octet {

std::string speed_column(std::string_view unit) {
  return fmt::format("{}_per_s", unit);
}

Table run_table(std::string_view unit) {
  return {{"recipe", "steps", "train_loss", "val_loss", speed_column(unit), "planned_bytes",
           "peak_bytes", "state_bytes"},
          {}};
}

std::vector<std::string> run_row(const GlobalOptions& options, const std::string& recipe,
                                 const TrainResult& result) {
  const auto loss = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.4f}", *value) : "";
  };
  return cells(recipe, result.step, loss(result.train_loss), loss(result.val_loss),
               result.was_finished ? "" : fmt::format("{:.0f}", result.tokens_per_s),
               bytes_cell(options, result.planned_bytes), bytes_cell(options, result.peak_bytes),
               bytes_cell(options, result.state_bytes));
}

}  // namespace octet
