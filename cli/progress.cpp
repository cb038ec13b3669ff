#include "cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/printable.h"
#include "base/units.h"

namespace octet {
namespace {

size_t terminal_width() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

bool shows_progress(const GlobalOptions& options) {
  return !options.quiet && ::isatty(STDERR_FILENO) == 1;
}

std::function<void(const TokenizeProgress&)> tokenize_painter(const GlobalOptions& options) {
  if (!shows_progress(options)) return {};
  return [](const TokenizeProgress& now) {
    clear_line();
    if (now.is_done) return;
    write_err(fmt::format("tokenizing {}: {} of {}, {} tokens", printable(now.name),
                          bytes_text(static_cast<double>(now.n_bytes)),
                          bytes_text(static_cast<double>(now.n_bytes_in_all)), now.n_tokens));
  };
}

OnProgress count_painter(const GlobalOptions& options, std::string before, std::string what,
                         int64_t every) {
  if (!shows_progress(options)) return {};
  return [before = std::move(before), what = std::move(what), every](int64_t n_done, int64_t n) {
    if (n_done % every != 0 && n_done != n) return;
    clear_line();
    if (n_done < n) write_err(fmt::format("{}{} of {} {}", before, n_done, n, what));
  };
}

Progress::Progress(const GlobalOptions& options, std::string name)
    : log_(make_log(options)), name_(std::move(name)), has_bar_(shows_progress(options)) {}

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
  write_err(step_bar(report, name_, terminal_width() - 1));
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
