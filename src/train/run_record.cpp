#include "train/run_record.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "train/edge_telemetry.h"

namespace octet {
namespace {

// Its square is the largest finite f32.
constexpr float kLargestSquared = 0x1p64f;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "host";
  return name.data();
}

StatisticsOptions statistics_options(const RunConfig& config) {
  return {.interval = config.train.telemetry_every,
          .last_step = config.train.steps,
          .window = config.train.spike_window,
          .spike_deviations = config.train.spike_deviations,
          .clip = config.optim.clip};
}

// False, with a warning, where an output failed that a run can do without.
bool attempt(const Log& log, const std::function<void()>& write) {
  try {
    write();
    return true;
  } catch (const Error& error) {
    log.warning("the run goes on without it: {}", error.what());
    return false;
  }
}

}  // namespace

RunRecord::RunRecord(Files& files, const RunConfig& config, int64_t last_step, const Log& log)
    : interval_(config.train.telemetry_every),
      is_clipped_(config.optim.clip > 0),
      statistics_(statistics_options(config)),
      metrics_(files, join_path(config.out, "metrics.jsonl"), last_step,
               [&](std::string_view line) { replay(line, last_step); }) {
  if (n_replayed_ != last_step) {
    log.warning("'{}': expected a line for each of {} steps, got {}",
                join_path(config.out, "metrics.jsonl"), last_step, n_replayed_);
  }
  attempt(log,
          [&] { telemetry_.emplace(files, join_path(config.out, "telemetry.jsonl"), last_step); });
  // Also of a run that goes on without prompts: what it repeats has no lines from before.
  const std::string samples = join_path(config.out, "samples.jsonl");
  if (!config.train.sample_prompts.empty() || files.exists(samples))
    attempt(log, [&] { samples_.emplace(files, samples, last_step); });
  if (!config.train.tensorboard) return;
  attempt(log, [&] {
    events_.emplace(files, config.out,
                    EventFileStart{.wall_time = wall_seconds(),
                                   .host = host_name(),
                                   .process = getpid(),
                                   .first_step = last_step + 1});
  });
}

// The loss is enough of a line before the interval that the last step belongs to.
void RunRecord::replay(std::string_view line, int64_t last_step) {
  ++n_replayed_;
  const int64_t first_whole = interval_ > 0 ? last_step - last_step % interval_ : last_step;
  const auto loss = quick_loss(line);
  if (loss && loss->step <= first_whole) return statistics_.replay(*loss);
  if (const auto report = parse_metrics(line)) statistics_.add(*report);
}

uint64_t RunRecord::add(const StepReport& report, const Log& log) {
  const std::string line = metrics_json(report);
  metrics_.append(line);
  n_written_ = std::exchange(n_sample_bytes_, 0) + line.size() + 1;
  add_telemetry(report, log);
  if (events_ && !attempt(log, [&] { add_events(report); })) events_.reset();
  return n_written_;
}

void RunRecord::add(const std::vector<TextSample>& samples, const Log& log) {
  for (const TextSample& sample : samples) {
    const std::string line = sample_json(sample);
    if (samples_ && !attempt(log, [&] { samples_->append(line); })) samples_.reset();
    n_sample_bytes_ += line.size() + 1;
  }
}

void RunRecord::sync(const Log& log) {
  metrics_.sync();
  if (samples_ && !attempt(log, [&] { samples_->sync(); })) samples_.reset();
  if (telemetry_ && !attempt(log, [&] { telemetry_->sync(); })) telemetry_.reset();
}

void RunRecord::write_telemetry(const std::string& line, const Log& log) {
  if (telemetry_ && !attempt(log, [&] { telemetry_->append(line); })) telemetry_.reset();
  n_written_ += line.size() + 1;
}

void RunRecord::add_telemetry(const StepReport& report, const Log& log) {
  if (report.site) {
    write_telemetry(telemetry_json(report.step, *report.site), log);
    log.warning("step {}: {}", report.step, to_string(*report.site));
  }
  if (!report.skipped && !is_clipped_ && report.grad_norm > kLargestSquared) {
    log.warning(
        "step {}: |g| is {:.3g}: the second moments of gradients above {:.2g} are the largest "
        "finite number until they decay",
        report.step, report.grad_norm, kLargestSquared);
  }
  if (const auto spike = statistics_.add(report)) {
    write_telemetry(telemetry_json(report.step, report.loss, *spike), log);
    log.warning("step {}: loss {:.4f} is {:.1f} deviations above its running mean {:.4f}",
                report.step, report.loss, spike->n_deviations, spike->mean);
  }
  for (const AuditDifference& difference : report.audit) {
    write_telemetry(audit_json(report.step, difference), log);
    log.warning("step {}: {}", report.step, audit_text(difference));
  }
  for (const EdgeStatistics& edge : report.edges)
    write_telemetry(telemetry_json(report.step, edge), log);
  if (const auto summary = statistics_.summary()) {
    write_telemetry(telemetry_json(*summary), log);
    log.info("{}", summary_line(*summary));
  }
}

void RunRecord::add_events(const StepReport& report) {
  std::vector<Scalar> scalars = {{"grad_norm", static_cast<double>(report.grad_norm)},
                                 {"lr", report.lr},
                                 {"tokens_per_s", report.tokens_per_s},
                                 {"mem_bytes", static_cast<double>(report.mem_bytes)}};
  if (report.has_labels())
    scalars.insert(scalars.begin(), {"loss", static_cast<double>(report.loss)});
  if (report.val_loss) scalars.push_back({"val_loss", *report.val_loss});
  for (const auto& [name, value] : report.val_figures) scalars.push_back({"val_" + name, value});
  n_written_ += events_->append(wall_seconds(), report.step, scalars);
}

}  // namespace octet
