#include "cli/report_csv.h"

#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "cli/csv.h"

namespace octet {
namespace {

template <typename Number>
std::string number_cell(Number value) {
  if constexpr (std::is_floating_point_v<Number>)
    if (!std::isfinite(value)) return "";
  return fmt::to_string(value);
}

}  // namespace

std::string report_csv(const std::vector<RunData>& runs) {
  const std::vector<std::string> figures = figure_names(runs);
  std::vector<std::string> header = {
      "run",  "recipe",   "seed",      "step", "tokens",       "unit",          "seconds",
      "loss", "val_loss", "grad_norm", "lr",   "tokens_per_s", "planned_bytes", "skipped"};
  for (const std::string& name : figures) header.push_back("val_" + name);
  std::string out = csv_row(header);
  for (const RunData& run : runs) {
    double ms = 0;
    for (const StepReport& s : run.steps) {
      if (std::isfinite(s.time_ms)) ms += s.time_ms;
      std::vector<std::string> row = {run.name,
                                      run.recipe,
                                      run.seed(),
                                      number_cell(s.step),
                                      number_cell(s.tokens),
                                      std::string(s.unit),
                                      number_cell(ms / 1000),
                                      s.has_labels() ? number_cell(s.loss) : "",
                                      s.val_loss ? number_cell(*s.val_loss) : "",
                                      s.has_labels() ? number_cell(s.grad_norm) : "",
                                      number_cell(s.lr),
                                      number_cell(s.tokens_per_s),
                                      number_cell(s.mem_bytes),
                                      s.skipped ? "1" : "0"};
      for (const std::string& name : figures) {
        const auto value = figure_of(s, name);
        row.push_back(value ? number_cell(*value) : "");
      }
      out += csv_row(row);
    }
  }
  return out;
}

}  // namespace octet
