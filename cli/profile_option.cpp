#include "cli/profile_option.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse_text.h"
#include "bench/machine.h"

namespace octet {

StepRange parse_step_range(const std::string& text) {
  const size_t colon = text.find(':');
  const auto first = parse_number<int64_t>(text.substr(0, colon)),
             last = parse_number<int64_t>(text.substr(colon + 1));
  if (colon != text.npos && first && last && 1 <= *first && *first <= *last) return {*first, *last};
  throw Error(ErrorCode::invalid_argument,
              "--profile-steps: expected FIRST:LAST with 1 <= FIRST <= LAST, got {}", text);
}

void StepProfiler::before_step(int64_t step) {
  const bool is_watched = range_.first <= step && step <= range_.last;
  if (is_watched) profile_.begin_step(step);
  engine_.observe(is_watched ? profile_.observer() : StepObserver{});
}

void StepProfiler::write(Files& files, const std::string& path, const Log& log) const {
  if (!has_seen_steps()) {
    log.warning("--profile-steps: no step of {}:{} ran, no trace written", range_.first,
                range_.last);
    return;
  }
  write_atomically(files, path, chrome_trace(profile_));
  log.info("trace of {} steps in {}; chrome://tracing and ui.perfetto.dev open it",
           profile_.n_train_steps(), path);
}

Table StepProfiler::table(Backend& backend) const {
  const Ceilings ceilings = measure_ceilings({backend, "", {}});
  Table table{{"kernel", "count", "ms", "% of step", "GB/s", "GFLOP/s", "% of ceiling"}, {}};
  const auto n_steps = static_cast<double>(std::max<int64_t>(profile_.n_train_steps(), 1));
  const auto add = [&](const ProfileRow& row) {
    const double seconds = row.ms / 1000;
    const auto rate = [&](double amount) {
      return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", amount / seconds / 1e9) : "";
    };
    const std::string name = row.kernel + (row.is_reference ? " (reference)" : "");
    table.rows.push_back(
        {name, fmt::format("{:g}", static_cast<double>(row.count) / n_steps),
         fmt::format("{:.3f}", row.ms / n_steps), fmt::format("{:.1f}", 100 * row.share),
         rate(row.bytes), rate(row.flops),
         row.floor_ms > 0 ? fmt::format("{:.0f}", 100 * row.floor_ms / row.ms) : ""});
  };
  ProfileRow total{.kernel = "total"};
  for (const ProfileRow& row : rows_by_kernel(profile_, ceilings)) {
    add(row);
    total.count += row.count;
    total.ms += row.ms;
    total.share += row.share;
    total.bytes += row.bytes;
    total.flops += row.flops;
    total.floor_ms += row.floor_ms;
  }
  add(total);
  return table;
}

}  // namespace octet
