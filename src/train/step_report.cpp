#include "train/step_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "base/ordered_json.h"
#include "base/parse_text.h"
#include "formats/bits.h"
#include "train/json_lines_file.h"

namespace octet {

std::string metrics_json(const StepReport& report) {
  OrderedJson json = {
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
      {"flagged", report.flagged ? 1 : 0},
  };
  if (report.clipped) json["clipped"] = *report.clipped ? 1 : 0;
  if (report.joules) json["joules"] = *report.joules;
  if (report.unit != kTokens) json["unit"] = report.unit;
  if (report.labels >= 0) json["labels"] = report.labels;
  if (report.loss_scale) {
    json["overflowed"] = report.overflowed ? 1 : 0;
    json["loss_scale"] = static_cast<double>(report.loss_scale->scale);
    json["loss_window"] = static_cast<int64_t>(report.loss_scale->window);
    json["loss_good_steps"] = static_cast<int64_t>(report.loss_scale->good_steps);
  }
  if (!report.skipped_tensors.empty()) json["refused"] = report.skipped_tensors;
  if (report.val_loss) json["val_loss"] = *report.val_loss;
  for (const auto& [name, value] : report.val_figures) json["val_" + name] = value;
  if (report.save) {
    json["save_s"] = report.save->total_s;
    json["save_stall_s"] = report.save->stall_s;
  }
  return json.dump();
}

std::optional<StepReport> parse_metrics(std::string_view line) {
  const Json json = parse_own_json(line);
  if (!json.is_object()) return std::nullopt;
  const auto number = [&](const char* key) {  // null: not finite
    const auto it = json.find(key);
    const bool is_number = it != json.end() && it->is_number();
    return is_number ? it->get<double>() : std::numeric_limits<double>::quiet_NaN();
  };
  const auto count = [&](const char* key) {
    const double value = number(key);
    return std::abs(value) < 9e15 ? static_cast<int64_t>(value) : 0;
  };
  StepReport report;
  report.step = count("step");
  if (report.step < 1) return std::nullopt;
  report.loss = static_cast<float>(number("loss"));
  if (const auto it = json.find("loss_bits"); it != json.end() && it->is_string()) {
    const auto& text = it->get_ref<const std::string&>();
    const auto bits = parse_number<uint32_t>(text, 16);
    if (bits && text.size() == 8) report.loss = float_of(*bits);
  }
  report.grad_norm = static_cast<float>(number("grad_norm"));
  report.lr = number("lr");
  if (const auto it = json.find("unit"); it != json.end() && *it == Json(kPictures))
    report.unit = kPictures;
  report.tokens = count("tokens");
  report.labels = json.contains("labels") ? count("labels") : -1;
  report.tokens_per_s = number("tokens_per_s");
  report.time_ms = number("time_ms");
  if (json.contains("joules")) report.joules = number("joules");
  report.mem_bytes = count("mem_bytes");
  report.skipped = count("skipped") != 0;
  report.flagged = count("flagged") != 0;
  if (json.contains("clipped")) report.clipped = count("clipped") != 0;
  if (json.contains("loss_scale")) {
    report.overflowed = count("overflowed") != 0;
    report.loss_scale = {.scale = static_cast<float>(number("loss_scale")),
                         .window = static_cast<float>(number("loss_window")),
                         .good_steps = static_cast<float>(number("loss_good_steps"))};
  }
  if (json.contains("val_loss")) report.val_loss = number("val_loss");
  for (const auto& [key, value] : json.items()) {
    if (key.starts_with("val_") && key != "val_loss")
      report.val_figures.emplace_back(key.substr(4), number(key.c_str()));
  }
  if (json.contains("save_s"))
    report.save = {.total_s = number("save_s"), .stall_s = number("save_stall_s")};
  if (const auto it = json.find("refused"); it != json.end() && it->is_array()) {
    for (const Json& name : *it) {
      if (name.is_string()) report.skipped_tensors.push_back(name.get<std::string>());
    }
  }
  return report;
}

std::optional<StepLoss> quick_loss(std::string_view line) {
  constexpr std::string_view kBits = "\"loss_bits\":\"";
  const std::optional<int64_t> step = quick_step(line);
  const size_t at = line.find(kBits);
  if (!step || at == line.npos) return std::nullopt;
  const char* digits = line.data() + at + kBits.size();
  const char* end = line.data() + line.size();
  uint32_t bits = 0;
  if (end - digits < 9) return std::nullopt;
  const auto read = std::from_chars(digits, digits + 8, bits, 16);
  if (read.ptr != digits + 8 || *read.ptr != '"') return std::nullopt;
  const bool has_labels = line.find("\"labels\":0") == line.npos;
  return StepLoss{*step, float_of(bits), has_labels};
}

float unsigned_nan(float value) {
  return std::isnan(value) ? std::abs(value) : value;
}
double unsigned_nan(double value) {
  return std::isnan(value) ? std::abs(value) : value;
}

std::string duration_text(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{}:{:02}", total / 60, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
}

std::string step_line(const StepReport& report) {
  std::string line = fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  |g| {:.2f}  {:.0f} {}/s",
                                 report.step, report.steps, unsigned_nan(report.loss), report.lr,
                                 unsigned_nan(report.grad_norm), report.tokens_per_s, report.unit);
  if (report.skipped && report.skipped_tensors.empty())
    line += "  skipped: a gradient is not finite";
  if (report.overflowed)
    line += fmt::format("  skipped: an overflow at loss scale {:g}", report.loss_scale->scale);
  if (!report.skipped_tensors.empty()) {
    line += fmt::format("  {}, gradient not finite: {}", report.skipped ? "skipped" : "left out",
                        fmt::join(report.skipped_tensors, ", "));
  }
  if (!report.has_labels()) line += "  no labels";
  if (report.val_loss)
    line += fmt::format("  validation loss {:.4f}", unsigned_nan(*report.val_loss));
  if (!report.val_amount.empty()) line += fmt::format(" ({})", report.val_amount);
  for (const auto& [name, value] : report.val_figures)
    line += fmt::format("  {} {:.4f}", name, unsigned_nan(value));
  if (report.step < report.steps) line += "  " + duration_text(report.seconds_left) + " left";
  return line;
}

namespace {

std::string bar_text(const StepReport& report, int64_t width) {
  const int64_t n_full = width * report.step / std::max<int64_t>(report.steps, 1);
  return fmt::format("[{:<{}}] ", std::string(static_cast<size_t>(n_full), '#'), width);
}

}  // namespace

std::string step_bar(const StepReport& report, std::string_view name, size_t width) {
  const std::string step =
      fmt::format("step {}/{}  loss {:.4f}", report.step, report.steps, unsigned_nan(report.loss));
  const std::string lr = fmt::format("  lr {:.2e}", report.lr);
  const std::string norm = fmt::format("  |g| {:.2f}", unsigned_nan(report.grad_norm));
  const std::string speed = fmt::format("  {:.0f} {}/s", report.tokens_per_s, report.unit);
  const std::string left =
      report.step < report.steps ? "  " + duration_text(report.seconds_left) + " left" : "";
  const std::string texts[] = {step + lr + norm + speed + left, step + lr + speed + left,
                               step + speed + left, step + left};
  for (const std::string& text : texts) {
    for (const int64_t bar : {20, 10}) {
      std::string line = fmt::format("{}{}{}", name, bar_text(report, bar), text);
      if (line.size() <= width) return line;
    }
  }
  std::string line = fmt::format("{}{}", name, texts[3]);
  line.resize(std::min(line.size(), width));
  return line;
}

}  // namespace octet
