#include "cli/report_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "config/load.h"
#include "config/report.h"
#include "infer/tasks/evaluations.h"
#include "io/checkpoint.h"

namespace octet {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kLossWindow = 20;
constexpr uint64_t kMaxMetricsBytes = uint64_t{4} << 30;

template <typename Take>
void for_each_line(const Files& files, const std::string& path, const Take& take) {
  std::istringstream text(files.read_text(path, kMaxMetricsBytes));
  for (std::string line; std::getline(text, line);) take(line);
}

void read_steps(const Files& files, RunData& run) {
  const std::string path = join_path(run.name, "metrics.jsonl");
  if (!files.exists(path)) {
    throw Error(ErrorCode::bad_data, "[report] '{}': expected a run with metrics.jsonl, got none",
                run.name);
  }
  for_each_line(files, path, [&](const std::string& line) {
    if (auto report = parse_metrics(line)) run.steps.push_back(std::move(*report));
  });
  if (run.steps.empty()) {
    throw Error(ErrorCode::bad_data, "[report] '{}': expected at least one step, got none", path);
  }
  std::ranges::stable_sort(
      run.steps, [](const StepReport& a, const StepReport& b) { return a.step < b.step; });
}

void read_config(const Files& files, RunData& run, const Log& log) {
  const std::string path = join_path(run.name, "config.yaml");
  if (!files.exists(path)) return;
  try {
    const RunConfig config = load_config(path).config;
    run.recipe = config.recipe.base;
    run.config = config_values(config);
  } catch (const Error& error) {
    log.warning("{}", error.what());
  }
}

// Without the hashes that a resume would check: a report reads sizes alone.
void read_state_bytes(Files& files, RunData& run, const Log& log) {
  const std::string folder = join_path(run.name, "ckpt");
  if (!files.exists(folder)) return;
  try {
    const std::vector<CheckpointEntry> entries = Checkpoints(files, folder).list();
    for (const CheckpointEntry& entry : entries) {
      if (!entry.is_whole()) continue;
      int64_t bytes = 0;
      const SafetensorsReader reader =
          SafetensorsReader::open(files, join_path(entry.path, "optim.safetensors"));
      for (const StoredTensor& tensor : reader.tensors())
        bytes += static_cast<int64_t>(tensor.n_bytes());
      run.state_bytes = bytes;
    }
  } catch (const Error& error) {
    log.warning("{}", error.what());
  }
}

void read_telemetry(const Files& files, RunData& run) {
  const std::string path = join_path(run.name, "telemetry.jsonl");
  if (!files.exists(path)) return;
  for_each_line(files, path, [&](const std::string& line) {
    if (auto edge = parse_edge(line)) return run.edges.push_back(std::move(*edge));
    const Json json = parse_own_json(line);
    if (json.is_object() && json.value("event", Json()) == "spike") ++run.n_spikes;
  });
}

}  // namespace

RunData read_run(Files& files, const std::string& path, const Log& log) {
  RunData run;
  run.name = path;
  while (run.name.size() > 1 && run.name.back() == '/') run.name.pop_back();
  read_steps(files, run);
  read_config(files, run, log);
  read_state_bytes(files, run, log);
  read_telemetry(files, run);
  run.evaluations = read_evaluations(files, run.name);
  return run;
}

RunSummary summarize(const RunData& run) {
  RunSummary summary{
      .train_loss = kNan, .val_loss = kNan, .best_val_loss = kNan, .tokens_per_s = kNan};
  summary.n_steps = run.steps.back().step;
  std::vector<double> losses, speeds;
  for (const StepReport& step : run.steps) {
    if (step.has_labels() && std::isfinite(step.loss))
      losses.push_back(static_cast<double>(step.loss));
    if (std::isfinite(step.tokens_per_s)) speeds.push_back(step.tokens_per_s);
    summary.mem_bytes = std::max(summary.mem_bytes, step.mem_bytes);
    summary.n_skipped += step.skipped ? 1 : 0;
    if (!step.val_loss) continue;
    summary.val_loss = *step.val_loss;
    if (!std::isfinite(*step.val_loss)) continue;
    if (*step.val_loss < summary.best_val_loss || std::isnan(summary.best_val_loss)) {
      summary.best_val_loss = *step.val_loss;
      summary.best_val_step = step.step;
    }
  }
  const size_t n_last = std::min(losses.size(), kLossWindow);
  double sum = 0;
  for (size_t i = losses.size() - n_last; i < losses.size(); ++i) sum += losses[i];
  if (n_last > 0) summary.train_loss = sum / static_cast<double>(n_last);
  if (!speeds.empty()) {
    const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
    std::nth_element(speeds.begin(), middle, speeds.end());
    summary.tokens_per_s = *middle;
  }
  return summary;
}

std::vector<ConfigDifference> config_differences(const std::vector<RunData>& runs) {
  std::vector<ConfigDifference> differences;
  const auto first = std::ranges::find_if(runs, [](const RunData& r) { return !r.config.empty(); });
  if (first == runs.end()) return differences;
  for (size_t i = 0; i < first->config.size(); ++i) {
    ConfigDifference line{first->config[i].first, {}};
    bool differs = false;
    for (const RunData& run : runs) {
      line.values.push_back(run.config.empty() ? "unknown" : run.config[i].second);
      differs |= !run.config.empty() && line.values.back() != first->config[i].second;
    }
    if (differs) differences.push_back(std::move(line));
  }
  return differences;
}

std::string loss_number(double loss) {
  loss = unsigned_nan(loss);
  return std::abs(loss) < 1e6 ? fmt::format("{:.4f}", loss) : fmt::format("{:.4g}", loss);
}

}  // namespace octet
