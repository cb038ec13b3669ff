// The trainer's files: where a run starts, and what it leaves.
#include <chrono>

#include "base/error.h"
#include "base/units.h"
#include "config/report.h"
#include "infer/model_spec.h"
#include "train/algorithms_file.h"
#include "train/state_io.h"
#include "train/trainer.h"

namespace octet {
namespace {

template <typename T>
void expect_same(std::string_view key, const T& in_checkpoint, const T& now) {
  if (in_checkpoint == now) return;
  throw Error(ErrorCode::invalid_argument, "[resume] {}: expected {} as in the checkpoint, got {}",
              key, in_checkpoint, now);
}

int64_t extra_count(const LoadedCheckpoint& checkpoint, const std::string& key) {
  const Manifest& manifest = checkpoint.manifest;
  const auto it = manifest.extra.find(key);
  const bool is_count = it != manifest.extra.end() && !it->second.empty() &&
                        it->second.size() < 19 &&
                        it->second.find_first_not_of("0123456789") == std::string::npos;
  if (is_count) return std::stoll(it->second);
  throw Error(ErrorCode::bad_data, "[resume] {}: expected a count '{}' in extra, got {}",
              checkpoint.path, key, it == manifest.extra.end() ? "none" : it->second);
}

// Says how fast a checkpoint went.
class Stopwatch {
 public:
  std::string text(int64_t n_bytes) const {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
    const auto bytes = static_cast<double>(n_bytes);
    return fmt::format("{} in {:.2f} s, {:.2f} GB/s", bytes_text(bytes), time.count(),
                       bytes / time.count() / 1e9);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Of what a checkpoint holds.
int64_t persistent_bytes(const Layout& layout) {
  int64_t total = 0;
  for (const auto& [name, slot] : layout.slots) {
    const bool is_kept = slot.kind == InputKind::parameter || slot.kind == InputKind::state;
    if (is_kept && slot.lane == Lane::persistent) total += slot.type.n_bytes();
  }
  return total;
}

std::string model_description(const Files& files, const RunConfig& config, const ModelSpec& spec) {
  if (config.model.path.empty()) return hf_config_text(spec);
  return files.read_text(join_path(config.model.path, "config.json"));
}

}  // namespace

void Trainer::start(StartMode mode, const TrainHooks& hooks) {
  Files& files = machine_.files;
  const Log& log = hooks.log;
  checkpoints_ = std::make_unique<Checkpoints>(files, file("ckpt"), log);
  if (mode == StartMode::resume) {
    const Stopwatch watch;
    if (const auto newest = checkpoints_->newest()) {
      resume_from(*newest);
      log.info("resuming from {} ({}) at step {}", newest->path,
               watch.text(persistent_bytes(engine_.layout())), attempted_);
    } else {
      log.info("no checkpoint in {}: beginning at step 1", file("ckpt"));
    }
  }
  write_atomically(files, file("config.yaml"), config_header(hooks.maker) + resolved_yaml(config_));
  write_atomically(files, file("config.json"), model_description(files, config_, spec_));
  if (!recall_problem_.empty()) log.warning("{}", recall_problem_);
  write_algorithms(files, file("algorithms.json"), machine_.catalogue);
  record_ = std::make_unique<RunRecord>(files, config_, attempted_);
}

void Trainer::resume_from(const LoadedCheckpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest;
  expect_same<std::string>("recipe", manifest.recipe, config_.recipe.base);
  expect_same<uint64_t>("train.seed", manifest.seed, static_cast<uint64_t>(config_.train.seed));
  if (config_.train.steps < manifest.attempted) {
    throw Error(ErrorCode::invalid_argument,
                "[resume] train.steps: expected at least {} as in the checkpoint, got {}",
                manifest.attempted, config_.train.steps);
  }
  restore_slots(engine_.arenas(), engine_.layout(), InputKind::parameter, checkpoint.model);
  restore_slots(engine_.arenas(), engine_.layout(), InputKind::state, checkpoint.optim);
  engine_.prepare_state();
  try {
    loader_.restore(manifest.loader);
  } catch (const Error& error) {
    throw Error(error.code(), "[resume] {}: {}", checkpoint.path, error.what());
  }
  attempted_ = manifest.attempted;
  skipped_ = manifest.skipped;
  tokens_ = manifest.tokens;
  nonfinite_in_a_row_ = extra_count(checkpoint, "nonfinite_in_a_row");
  saved_step_ = attempted_;
}

void Trainer::save(const Log& log) {
  if (saved_step_ == attempted_) return;
  const Stopwatch watch;
  CheckpointContents contents;
  contents.manifest.step = attempted_;
  contents.manifest.attempted = attempted_;
  contents.manifest.skipped = skipped_;
  contents.manifest.tokens = tokens_;
  contents.manifest.seed = static_cast<uint64_t>(config_.train.seed);
  contents.manifest.recipe = config_.recipe.base;
  contents.manifest.loader = loader_.state();
  contents.manifest.extra["nonfinite_in_a_row"] = std::to_string(nonfinite_in_a_row_);
  contents.model = slot_sources(engine_.arenas(), engine_.layout(), InputKind::parameter);
  contents.optim = slot_sources(engine_.arenas(), engine_.layout(), InputKind::state);
  record_->sync();
  checkpoints_->save(contents, static_cast<int>(config_.train.keep));
  saved_step_ = attempted_;
  log.info("saved step {}: {}", attempted_, watch.text(persistent_bytes(engine_.layout())));
}

}  // namespace octet
