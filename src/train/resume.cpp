#include "train/resume.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "config/load.h"
#include "config/record.h"
#include "infer/model_spec.h"
#include "optim/schedule.h"
#include "train/run_setup.h"
#include "train/run_statistics.h"
#include "train/validation_watch.h"

namespace octet {
namespace {

// The configuration that the run's folder tells, for keys that a manifest does not hold.
RunConfig config_of_folder(const Files& files, const RunConfig& now, const Log& log) {
  const std::string path = join_path(now.out, "config.yaml");
  if (!files.exists(path)) return now;
  try {
    RunConfig config = parse_config(files.read_text(path), path).config;
    if (config.model.path.empty()) return with_shape(config, model_from_config(files, config));
    const std::string folder = config.model.path;
    config.model = now.model;
    config.model.path = folder;
    return config;
  } catch (const Error& error) {
    log.warning("[resume] {} is not compared: {}", path, error.what());
    return now;
  }
}

[[noreturn]] void fail_counter(const LoadedCheckpoint& checkpoint, std::string_view key,
                               const std::string& expected, int64_t got) {
  throw Error(ErrorCode::bad_data, "[resume] {}/manifest.json: '{}' must be {}, got {}",
              checkpoint.path, key, expected, got);
}

std::string value_of(const KeyValues& values, const std::string& key) {
  const auto it = values.find(key);
  return it == values.end() ? "" : it->second;
}

// The manifest of the newest whole checkpoint; nothing where there is none. One that cannot be read
// is left to --resume, which tells, and takes an older one.
std::optional<Manifest> newest_manifest(Files& files, const std::string& run) {
  const std::vector<CheckpointEntry> entries = Checkpoints(files, join_path(run, "ckpt")).list();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->is_whole()) continue;
    try {
      const std::string path = join_path(entry->path, "manifest.json");
      return parse_manifest(files.read_text(path), path);
    } catch (const Error&) {
    }
  }
  return std::nullopt;
}

// Keys that a run keeps from its newest checkpoint when it goes on.
struct KeptKey {
  // The source that sets it anew: the command line alone, or the configuration too.
  enum class Over : uint8_t { command_line, configuration };

  const char* key;
  const char* former;  // of a checkpoint that does not record it; nullptr: as it is now
  Over over;
  const char* former_of_all = nullptr;  // where the recipe let all GEMMs accumulate fast
};
constexpr KeptKey kKeptKeys[] = {
    {"data.chat.arguments", "keep", KeptKey::Over::configuration},
    {"data.text_end", "false", KeptKey::Over::configuration},
    {"data.too_long", "drop", KeptKey::Over::configuration},
    {"data.val_fraction", nullptr, KeptKey::Over::configuration},
    {"lora.targets", "['*_proj']", KeptKey::Over::configuration},
    {"model.norm_eps", nullptr, KeptKey::Over::configuration},
    {"optim.schedule_version", "1", KeptKey::Over::command_line},
    {"recipe.accumulation", "forward", KeptKey::Over::command_line, "fast"},
    {"recipe.block_scale", "power", KeptKey::Over::command_line},
    {"recipe.calibrate", nullptr, KeptKey::Over::command_line},
    {"recipe.edge_scales", nullptr, KeptKey::Over::command_line},
    {"recipe.forward_reads", "stored", KeptKey::Over::command_line},
    {"recipe.weight_rms", "init", KeptKey::Over::command_line},
};

// The former value for a run of this recipe, where a checkpoint does not record the key.
const char* former_of(const KeptKey& kept, const RunConfig& config) {
  const bool of_all = kept.former_of_all != nullptr &&
                      find_recipe(config.recipe.base).fast_accumulate == FastAccumulate::all;
  return of_all ? kept.former_of_all : kept.former;
}

bool is_set_anew(const KeptKey& kept, const ConfigSources& sources) {
  if (!sources.contains(kept.key)) return false;
  return kept.over == KeptKey::Over::command_line ? is_set(sources, kept.key)
                                                  : is_written(sources, kept.key);
}

// Warns where another number of steps moves the learning rate's curve under a run; empty: nowhere.
std::string rate_warning(const RunConfig& before, const RunConfig& now, int64_t step) {
  constexpr double kEqual = 1e-6;
  if (before.train.steps == now.train.steps || step >= now.train.steps || step < 1) return "";
  const double last = learning_rate(schedule_of(before), step);
  const double planned = learning_rate(schedule_of(before), step + 1);
  const double next = learning_rate(schedule_of(now), step + 1);
  const bool is_between = next <= std::max(last, planned) * (1 + kEqual) &&
                          next >= std::min(last, planned) * (1 - kEqual);
  if (is_between) return "";
  const std::string advice =
      last > 0 ? fmt::format("; --set optim.schedule=constant --set optim.lr={:.4g} keeps it", last)
               : "";
  return fmt::format(
      "[resume] {} steps become {}: the learning rate jumps from {:.4g} at step {} to {:.4g} at "
      "step {}{}",
      before.train.steps, now.train.steps, last, step, next, step + 1, advice);
}

}  // namespace

RunConfig with_shape(RunConfig config, const ModelSpec& spec) {
  static_cast<ModelSpec&>(config.model) = spec;
  return config;
}

ResumedConfig resumed_config(const Files& files, const LoadedCheckpoint& checkpoint,
                             const RunConfig& now, const ConfigSources& sources, const Log& log) {
  const RunConfig in_folder = config_of_folder(files, now, log);
  RunConfig before = recorded_config(checkpoint.manifest.config, in_folder,
                                     join_path(checkpoint.path, "manifest.json"));
  for (const KeptKey& kept : kKeptKeys) {
    if (kept.former != nullptr && !checkpoint.manifest.config.contains(kept.key))
      before = recorded_config({{kept.key, former_of(kept, before)}}, before, checkpoint.path);
  }
  ResumedConfig resumed{.config = now, .warning = {}};
  auto named = sources;
  // A warmup that was fitted into a short run stays too, when the run goes on to its file's length.
  const bool is_fitted = sources.contains("optim.warmup") && !is_set(sources, "optim.warmup") &&
                         before.optim.warmup == fitted_warmup(now.optim.warmup, before.train.steps);
  if (is_fitted || !is_written(sources, "optim.warmup")) {
    if (before.optim.warmup <= now.train.steps) resumed.config.optim.warmup = before.optim.warmup;
    named["optim.warmup"] = "--set";
  }
  const std::vector<ConfigChange> changes = config_changes(before, resumed.config);
  check_changes(changes, resumed.config, named);
  for (const ConfigChange& change : changes) {
    log.info("[resume] {}: {} becomes {}", change.row->path, change.before, change.after);
  }
  resumed.warning = rate_warning(before, resumed.config, checkpoint.manifest.step);
  resumed.is_changed = !changes.empty() || !config_changes(in_folder, resumed.config).empty();
  return resumed;
}

void check_counters(const LoadedCheckpoint& checkpoint, const RowLoader& loader,
                    const RunConfig& config) {
  const Manifest& manifest = checkpoint.manifest;
  if (manifest.attempted != manifest.step) {
    fail_counter(checkpoint, "attempted", fmt::format("the step, {}", manifest.step),
                 manifest.attempted);
  }
  const int64_t seq = config.model.seq;
  const bool may_be_shorter = config.data.buckets > 1;
  // Pictures count one a row; earlier versions counted them as rows of tokens.
  const bool are_pictures = !loader.plan().counts_tokens();
  const bool agrees =
      (manifest.tokens % seq == 0 && manifest.tokens / seq == loader.rows_consumed()) ||
      (are_pictures && manifest.tokens == loader.rows_consumed());
  if (!agrees && !(may_be_shorter && manifest.tokens / seq < loader.rows_consumed())) {
    fail_counter(checkpoint, "tokens",
                 fmt::format("{}{} for each of the {} windows that the loader drew",
                             may_be_shorter ? "at most " : "", are_pictures ? 1 : seq,
                             loader.rows_consumed()),
                 manifest.tokens);
  }
  const int64_t overflowed =
      manifest.extra.contains("overflowed") ? extra_count(checkpoint, "overflowed") : 0;
  if (overflowed > manifest.attempted - manifest.skipped) {
    fail_counter(checkpoint, "overflowed",
                 fmt::format("at most the {} steps that were not skipped",
                             manifest.attempted - manifest.skipped),
                 overflowed);
  }
  const int64_t in_a_row = extra_count(checkpoint, "nonfinite_in_a_row");
  if (in_a_row > manifest.attempted) {
    fail_counter(checkpoint, "nonfinite_in_a_row",
                 fmt::format("at most the step, {}", manifest.step), in_a_row);
  }
}

int64_t extra_count(const LoadedCheckpoint& checkpoint, const std::string& key) {
  const std::string text = value_of(checkpoint.manifest.extra, key);
  const bool is_count = !text.empty() && text.size() < 19 &&
                        text.find_first_not_of("0123456789") == std::string::npos;
  if (is_count) return std::stoll(text);
  throw Error(ErrorCode::bad_data, "[resume] {}: expected a count '{}' in extra, got {}",
              checkpoint.path, key, text.empty() ? "none" : text);
}

std::optional<StepReport> left_over_step(const LoadedCheckpoint& checkpoint) {
  const std::string line = value_of(checkpoint.manifest.extra, "unrecorded");
  if (line.empty()) return std::nullopt;
  std::optional<StepReport> report = parse_metrics(line);
  if (report && report->step == checkpoint.manifest.step) return report;
  throw Error(ErrorCode::bad_data,
              "[resume] {}/manifest.json: 'unrecorded' must be a line of step {}", checkpoint.path,
              checkpoint.manifest.step);
}

bool is_at_end(Files& files, const RunConfig& config) {
  const std::optional<Manifest> manifest = newest_manifest(files, config.out);
  if (!manifest) return false;
  if (manifest->attempted == config.train.steps) return true;
  ValidationWatch watch;
  watch.read(manifest->extra, config.out);
  return config.train.patience > 0 && watch.n_since_best() >= config.train.patience;
}

std::optional<RecordedStep> recorded_step(const Files& files, const std::string& run,
                                          int64_t step) {
  constexpr uint64_t kMaxBytes = 1 << 20;  // of the last lines
  const std::string path = join_path(run, "metrics.jsonl");
  if (!files.exists(path)) return std::nullopt;
  const auto file = files.open(path);
  std::string end(std::min(kMaxBytes, file->size()), '\0');
  file->read_at(file->size() - end.size(), end);
  while (end.ends_with('\n')) end.pop_back();
  const std::optional<StepReport> report = parse_metrics(end.substr(end.rfind('\n') + 1));
  if (!report || report->step != step) return std::nullopt;
  LastLosses losses;
  for (size_t at = 0; at < end.size();) {
    const size_t n = std::min(end.find('\n', at), end.size()) - at;
    const auto loss = quick_loss(std::string_view(end).substr(at, n));  // none of a part of a line
    if (loss && loss->has_labels) losses.add(static_cast<double>(loss->loss));
    at += n + 1;
  }
  return RecordedStep{*report, losses.mean()};
}

void compare_machines(const Manifest& manifest, const KeyValues& now, const Log& log) {
  if (manifest.machine.empty() || manifest.machine == now) return;
  const auto text = [](const KeyValues& machine) {
    const std::string isa = value_of(machine, "isa");
    const std::string each = value_of(machine, "ranks_a_host");
    return value_of(machine, "device") + (isa.empty() ? "" : ", --isa " + isa) +
           (each.empty() ? "" : ", sums of " + each + " ranks a host first");
  };
  log.warning(
      "[resume] the checkpoint was computed on {}, and this process computes on {}: results will "
      "differ in their last bits from those of an uninterrupted run",
      text(manifest.machine), text(now));
}

void keep_step_rows(Files& files, LoadedConfig& loaded, const Log& log) {
  RunConfig& now = loaded.config;
  const std::optional<Manifest> manifest = newest_manifest(files, now.out);
  if (!manifest) return;
  const RunConfig before = recorded_config(manifest->config, now, now.out);
  const auto ranks = manifest->config.find("parallel.ranks");
  const int64_t n_before = ranks == manifest->config.end() ? 1 : before.parallel.ranks;
  if (n_before == now.parallel.ranks || is_set(loaded.source, "train.accumulate")) return;
  const int64_t rows = before.train.batch * before.train.accumulate * n_before;
  const int64_t micro_rows = now.train.batch * now.parallel.ranks;
  if (rows % micro_rows != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        "[resume] parallel.ranks: expected a number that divides the {} rows of a step into "
        "micro-batches of {} (train.batch), got {}",
        rows, now.train.batch, now.parallel.ranks);
  }
  now.train.accumulate = rows / micro_rows;
  loaded.source["train.accumulate"] = "derived";
  log.info(
      "[resume] {} ranks become {}: train.accumulate is {}, so that a step has {} rows as before",
      n_before, now.parallel.ranks, now.train.accumulate, rows);
}

void keep_recorded(Files& files, LoadedConfig& loaded) {
  const std::optional<Manifest> manifest = newest_manifest(files, loaded.config.out);
  if (!manifest) return;
  for (const KeptKey& kept : kKeptKeys) {
    const auto recorded = manifest->config.find(kept.key);
    const bool is_recorded = recorded != manifest->config.end();
    if (is_set_anew(kept, loaded.source) || (!is_recorded && kept.former == nullptr)) continue;
    const std::string value = is_recorded ? recorded->second : former_of(kept, loaded.config);
    loaded.config = recorded_config({{kept.key, value}}, loaded.config, loaded.config.out);
    loaded.source[kept.key] = "derived";
  }
}

std::string recorded_isa(Files& files, const std::string& run) {
  const std::optional<Manifest> manifest = newest_manifest(files, run);
  return manifest ? value_of(manifest->machine, "isa") : "";
}

}  // namespace octet
