#include "cli/report_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/if_there.h"
#include "base/json.h"
#include "config/load.h"
#include "config/report.h"
#include "infer/tasks/evaluations.h"
#include "io/checkpoint.h"
#include "train/run_statistics.h"

namespace octet {
namespace {

constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kLossWindow = 20;
constexpr uint64_t kMaxLinesBytes = uint64_t{4} << 30;
constexpr size_t kMaxCompared = 256;  // bytes that tell whether lines are still those read

// Ended lines alone: the last one may still be written.
template <typename Take>
void for_each_line(std::string_view text, const Take& take) {
  for (size_t end = 0; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
    take(text.substr(0, end));
}

void read_config(const Files& files, RunData& run, const Log& log) {
  const std::string path = join_path(run.name, "config.yaml");
  if (!run.config.empty() || !files.exists(path)) return;
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
  try {
    const std::vector<CheckpointEntry> entries = Checkpoints(files, folder).list();
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
      if (!entry->is_whole()) continue;
      const std::string path = join_path(entry->path, "optim.safetensors");
      const auto reader =
          if_there(files, path, [&] { return SafetensorsReader::open(files, path); });
      if (!reader) continue;  // the run removed it meanwhile
      int64_t bytes = 0;
      for (const StoredTensor& tensor : reader->tensors())
        bytes += static_cast<int64_t>(tensor.n_bytes());
      run.state_bytes = bytes;
      return;
    }
  } catch (const Error& error) {
    log.warning("{}", error.what());
  }
}

void read_plan(const Files& files, RunData& run) {
  const std::string path = join_path(run.name, "plan.json");
  if (!files.exists(path)) return;
  const Json json = parse_own_json(files.read_text(path));
  if (!json.is_object() || !json.contains("rescales")) return;
  const Json& counts = json.at("rescales");
  const auto count = [&](const char* name) {
    return counts.is_object() && counts.contains(name) && counts.at(name).is_number_integer()
               ? counts.at(name).get<int64_t>()
               : 0;
  };
  run.rescales = {.measured = count("measured"),
                  .at_run_time = count("at_run_time"),
                  .constant = count("constant"),
                  .folded = count("folded")};
}

void read_telemetry(const Files& files, RunData& run) {
  const std::string path = join_path(run.name, "telemetry.jsonl");
  if (!files.exists(path)) return;
  run.edges.clear();
  run.n_spikes = 0;
  for_each_line(files.read_text(path, kMaxLinesBytes), [&](std::string_view line) {
    if (auto edge = parse_edge(line)) return run.edges.push_back(std::move(*edge));
    const Json json = parse_own_json(line);
    if (json.is_object() && json.value("event", Json()) == "spike") ++run.n_spikes;
  });
}

void read_samples(const Files& files, RunData& run) {
  const std::string path = join_path(run.name, "samples.jsonl");
  if (!files.exists(path)) return;
  run.samples.clear();
  for_each_line(files.read_text(path, kMaxLinesBytes), [&](std::string_view line) {
    if (auto sample = parse_sample(line)) run.samples.push_back(std::move(*sample));
  });
}

}  // namespace

std::string RunData::seed() const {
  const auto key = std::ranges::find(config, "train.seed", &ConfigValues::value_type::first);
  return key == config.end() ? "" : key->second;
}

RunReader::RunReader(Files& files, const std::string& path, const Log& log)
    : files_(files), log_(log) {
  data_.name = path;
  while (data_.name.size() > 1 && data_.name.back() == '/') data_.name.pop_back();
  const bool is_file = files.exists(data_.name) && !files.is_directory(data_.name);
  if (is_file && file_name(data_.name) == kMetricsFile) data_.name = parent_path(data_.name);
  refresh();
}

std::vector<std::string> distinct_runs(const std::vector<std::string>& paths, const Log& log) {
  std::vector<std::string> runs;
  std::set<std::filesystem::path> seen;
  for (const std::string& path : paths) {
    std::error_code unknown;  // its reader tells
    std::filesystem::path whole = std::filesystem::canonical(path, unknown);
    if (whole.filename() == kMetricsFile) whole = whole.parent_path();
    if (unknown || seen.insert(whole).second) {
      runs.push_back(path);
    } else {
      log.warning("[report] '{}' is named twice and counts once", path);
    }
  }
  return runs;
}

bool RunReader::read_steps() {
  const std::string path = join_path(data_.name, kMetricsFile);
  if (!files_.exists(path)) {
    const char* const got = !files_.exists(data_.name)        ? "nothing"
                            : files_.is_directory(data_.name) ? "a folder without it"
                                                              : "a file";
    throw Error(ErrorCode::bad_data, "[report] '{}': expected a run's folder, with {}, got {}",
                data_.name, kMetricsFile, got);
  }
  const auto reader = files_.open(path);
  const uint64_t size = reader->size();
  if (size > kMaxLinesBytes) {
    throw Error(ErrorCode::bad_data, "[report] '{}': expected at most {} bytes, got {}", path,
                kMaxLinesBytes, size);
  }
  std::string last(last_.size(), '\0');
  if (size >= n_read_) reader->read_at(n_read_ - last.size(), last);
  const bool is_anew = size < n_read_ || last != last_;
  const uint64_t from = is_anew ? 0 : n_read_;
  std::string text(size - from, '\0');
  reader->read_at(from, text);
  text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  std::vector<StepReport> steps;
  for_each_line(text, [&](std::string_view line) {
    if (auto report = parse_metrics(line)) steps.push_back(std::move(*report));
  });
  if (steps.empty() && (is_anew || data_.steps.empty())) {
    throw Error(ErrorCode::bad_data, "[report] '{}': expected at least one step, got none", path);
  }
  if (is_anew) data_ = RunData{.name = data_.name, .steps = {}};  // another run's
  if (!text.empty()) last_ = text.substr(text.size() - std::min(text.size(), kMaxCompared));
  n_read_ = from + text.size();
  data_.steps.insert(data_.steps.end(), steps.begin(), steps.end());
  std::ranges::stable_sort(data_.steps, {}, &StepReport::step);
  return is_anew || !steps.empty();
}

bool RunReader::refresh() {
  if (!read_steps()) return false;
  read_config(files_, data_, log_);
  read_state_bytes(files_, data_, log_);
  read_plan(files_, data_);
  read_telemetry(files_, data_);
  read_samples(files_, data_);
  data_.evaluations = read_evaluations(files_, data_.name);
  return true;
}

RunSummary summarize(const RunData& run) {
  RunSummary summary{
      .train_loss = kNan, .val_loss = kNan, .best_val_loss = kNan, .tokens_per_s = kNan};
  summary.n_steps = run.steps.back().step;
  std::vector<double> losses;
  StepTally speed;
  double joules = 0, n_counted = 0;  // tokens up to the last step whose joules are known
  for (const StepReport& step : run.steps) {
    if (step.has_labels() && std::isfinite(step.loss))
      losses.push_back(static_cast<double>(step.loss));
    if (std::isfinite(step.tokens_per_s) && std::isfinite(step.time_ms)) speed.add(step);
    if (step.joules && std::isfinite(*step.joules)) {
      joules += *step.joules;
      n_counted = speed.n_tokens();
    }
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
  summary.unit = run.steps.back().unit;
  summary.tokens_per_s = speed.tokens_per_s().value_or(kNan);
  if (joules > 0) summary.tokens_per_joule = n_counted / joules;
  return summary;
}

std::vector<std::string> figure_names(const std::vector<RunData>& runs) {
  std::vector<std::string> names;
  for (const RunData& run : runs) {
    for (const StepReport& step : run.steps) {
      for (const auto& [name, value] : step.val_figures) {
        if (std::ranges::find(names, name) == names.end()) names.push_back(name);
      }
    }
  }
  return names;
}

std::optional<double> figure_of(const StepReport& step, const std::string& name) {
  const auto found =
      std::ranges::find(step.val_figures, name, [](const auto& one) { return one.first; });
  if (found == step.val_figures.end()) return std::nullopt;
  return found->second;
}

std::optional<double> last_figure(const RunData& run, const std::string& name) {
  for (auto step = run.steps.rbegin(); step != run.steps.rend(); ++step) {
    if (const auto value = figure_of(*step, name)) return value;
  }
  return std::nullopt;
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
