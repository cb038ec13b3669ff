#include "train/run_record.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <sstream>
#include <vector>

namespace octet {
namespace {

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

}  // namespace

RunRecord::RunRecord(Files& files, const RunConfig& config, int64_t last_step)
    : metrics_(files, join_path(config.out, "metrics.jsonl"), last_step),
      telemetry_(files, join_path(config.out, "telemetry.jsonl"), last_step),
      statistics_(statistics_options(config)) {
  std::istringstream kept(metrics_.kept());
  for (std::string line; std::getline(kept, line);) {
    if (const auto report = parse_metrics(line)) statistics_.add(*report);
  }
  if (config.train.tensorboard) {
    events_.emplace(files, config.out,
                    EventFileStart{.wall_time = wall_seconds(),
                                   .host = host_name(),
                                   .process = getpid(),
                                   .first_step = last_step + 1});
  }
}

void RunRecord::add(const StepReport& report, const Log& log) {
  metrics_.append(metrics_json(report));
  add_telemetry(report, log);
  add_events(report);
}

void RunRecord::sync() {
  metrics_.sync();
  telemetry_.sync();
}

void RunRecord::add_telemetry(const StepReport& report, const Log& log) {
  if (report.nonfinite) {
    telemetry_.append(telemetry_json(report.step, *report.nonfinite));
    log.warning("step {}: {}", report.step, to_string(*report.nonfinite));
  }
  if (const auto spike = statistics_.add(report)) {
    telemetry_.append(telemetry_json(report.step, report.loss, *spike));
    log.warning("step {}: loss {:.4f} is {:.1f} deviations above its running mean {:.4f}",
                report.step, report.loss, spike->n_deviations, spike->mean);
  }
  if (const auto summary = statistics_.summary()) {
    telemetry_.append(telemetry_json(*summary));
    log.info("{}", summary_line(*summary));
  }
}

void RunRecord::add_events(const StepReport& report) {
  if (!events_) return;
  std::vector<Scalar> scalars = {{"loss", static_cast<double>(report.loss)},
                                 {"grad_norm", static_cast<double>(report.grad_norm)},
                                 {"lr", report.lr},
                                 {"tokens_per_s", report.tokens_per_s},
                                 {"mem_bytes", static_cast<double>(report.mem_bytes)}};
  if (report.val_loss) scalars.push_back({"val_loss", *report.val_loss});
  events_->append(wall_seconds(), report.step, scalars);
}

}  // namespace octet
