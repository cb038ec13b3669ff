#include "train/step_report.h"

#include <fmt/format.h>

#include <cmath>

#include "formats/bits.h"
#include "io/json.h"

namespace octet {

std::string metrics_json(const StepReport& report) {
  nlohmann::ordered_json json = {
      {"step", report.step},
      {"loss", static_cast<double>(report.loss)},
      {"loss_bits", fmt::format("{:08x}", bits_of(report.loss))},
      {"grad_norm", static_cast<double>(report.grad_norm)},
      {"lr", report.lr},
      {"tokens", report.tokens},
      {"tokens_per_s", report.tokens_per_s},
      {"time_ms", report.time_ms},
      {"mem_bytes", report.mem_bytes},
      {"skipped", report.skipped ? 1 : 0},
  };
  if (report.val_loss) json["val_loss"] = *report.val_loss;
  return json.dump();
}

std::string duration_text(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{}:{:02}", total / 60, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
}

std::string step_line(const StepReport& report) {
  std::string line =
      fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  |g| {:.2f}  {:.0f} tokens/s", report.step,
                  report.steps, report.loss, report.lr, report.grad_norm, report.tokens_per_s);
  if (report.skipped) line += "  skipped: a gradient is not finite";
  if (report.val_loss) line += fmt::format("  validation loss {:.4f}", *report.val_loss);
  if (report.step < report.steps) line += "  " + duration_text(report.seconds_left) + " left";
  return line;
}

}  // namespace octet
