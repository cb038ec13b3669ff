#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace octet {
namespace {

constexpr int64_t kBarWidth = 20;

size_t terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(const GlobalOptions& options, std::string name)
    : log_(make_log(options)),
      name_(std::move(name)),
      has_bar_(!options.quiet && ::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  clear();
}

void Progress::clear() {
  if (is_painted_) clear_line();
  is_painted_ = false;
}

void Progress::paint(const StepReport& report) {
  clear();
  if (report.val_loss || report.skipped || !report.skipped_tensors.empty())
    log_.info("{}{}", name_, step_line(report));
  const int64_t n_full = kBarWidth * report.step / std::max<int64_t>(report.steps, 1);
  const std::string bar(static_cast<size_t>(n_full), '#');
  std::string line = fmt::format("{}[{:<{}}] {}", name_, bar, kBarWidth, step_line(report));
  line.resize(std::min(line.size(), terminal_width() - 1));
  write_err(line);
  is_painted_ = true;
}

TrainHooks Progress::hooks() {
  TrainHooks hooks;
  if (has_bar_) hooks.on_step = [this](const StepReport& report) { paint(report); };
  hooks.log = Log([this](LogLevel level, const std::string& message) {
    clear();
    log_.write(level, level == LogLevel::info ? name_ + message : message);
  });
  return hooks;
}

}  // namespace octet
