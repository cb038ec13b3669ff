#include "train/state_saver.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/units.h"
#include "train/state_io.h"

namespace octet {
namespace {

std::vector<StoredSlot> all_slots(TrainEngine& engine) {
  std::vector<StoredSlot> all;
  for (const InputKind kind : {InputKind::parameter, InputKind::state}) {
    for (StoredSlot& slot : stored_slots(engine.arenas(), engine.layout(), kind))
      all.push_back(std::move(slot));
  }
  return all;
}

CopyRing::Source ring_source(const StoredSlot& slot) {
  return {slot.data, slot.slot->type.n_bytes()};
}

}  // namespace

StateSaver::StateSaver(Files& files, std::string folder, TrainEngine& engine,
                       const Options& options)
    : files_(files), folder_(std::move(folder)), engine_(engine) {
  if (!options.in_background) return;
  std::vector<CopyRing::Source> sources;
  for (const StoredSlot& slot : all_slots(engine)) sources.push_back(ring_source(slot));
  const int64_t n_bytes = std::min(options.buffer_bytes, CopyRing::bytes_for(sources));
  ring_ = std::make_unique<CopyRing>(engine.arenas().device(), n_bytes);
}

StateSaver::~StateSaver() {
  if (running_ && running_->thread.joinable()) running_->thread.join();
  engine_.before_overwrite({});
}

// From the ring the tensors come in the order of the files.
CheckpointContents StateSaver::contents(const SaveRequest& request, bool from_ring) {
  Arenas& arenas = engine_.arenas();
  const Layout& layout = engine_.layout();
  CheckpointContents all{.manifest = request.manifest,
                         .model = {},
                         .optim = {},
                         .model_metadata = request.model_metadata};
  if (!from_ring) {
    all.model = slot_sources(arenas, layout, InputKind::parameter);
    all.optim = slot_sources(arenas, layout, InputKind::state);
    return all;
  }
  std::vector<CopyRing::Source> sources;
  const auto take_from_ring = [&](InputKind kind) {
    std::vector<TensorSource> tensors;
    for (StoredSlot& slot : stored_slots(arenas, layout, kind))
      tensors.push_back({std::move(slot.decl), {}});
    for (const TensorSource* next : in_file_order(tensors)) {
      TensorSource& tensor = tensors[static_cast<size_t>(next - tensors.data())];
      const Layout::Slot& slot = layout.slots.at(tensor.decl.name);
      tensor.emit = [this, index = sources.size()](const ByteSink& sink) {
        ring_->take(index, sink);
      };
      sources.push_back({arenas.lane(slot.lane) + slot.offset, slot.type.n_bytes()});
    }
    return tensors;
  };
  all.model = take_from_ring(InputKind::parameter);
  all.optim = take_from_ring(InputKind::state);
  arenas.device().synchronize();
  ring_->begin(std::move(sources));
  return all;
}

void StateSaver::save_now(const SaveRequest& request, const Log& log) {
  wait(log);
  const Stopwatch watch;
  Checkpoints(files_, folder_, log).save(contents(request, /*from_ring=*/false), request.keep);
  stall_ += watch.seconds();
  tell_saved(request.manifest.step, watch.seconds(), log);
}

void StateSaver::save_behind(SaveRequest request, const Log& log) {
  if (!ring_) return save_now(request, log);
  poll(log);
  if (running_ && !std::exchange(has_told_wait_, true)) {
    log.warning(
        "step {} is to be saved before step {} has been written: each such save waits (a larger "
        "train.save_every, or a faster disk)",
        request.manifest.step, running_->step);
  }
  wait(log);
  running_ = std::make_unique<Running>();
  Running& running = *running_;
  running.step = request.manifest.step;
  running.keep = request.keep;
  running.contents = contents(request, /*from_ring=*/true);
  engine_.before_overwrite([this] { wait_copied(); });
  try {
    running.thread = std::thread([this, &running] { write(running); });
  } catch (const std::system_error& error) {
    log.warning("step {} is saved at once: no thread could be made ({})", running.step,
                error.what());
    write(running);
  }
  stall_ += running.watch.seconds();
}

// In the thread.
void StateSaver::write(Running& running) {
  try {
    const Log log([&](LogLevel level, const std::string& message) {
      running.messages.emplace_back(level, message);
    });
    Checkpoints(files_, folder_, log).save(running.contents, running.keep);
  } catch (...) {
    running.error = std::current_exception();
  }
  ring_->end();
  running.seconds = running.watch.seconds();
  running.has_ended = true;
}

// What computing has queued goes on while the host waits: only what is left when it has ended is
// time lost.
void StateSaver::wait_copied() {
  if (ring_->is_copied()) return;
  engine_.arenas().device().synchronize();
  const Stopwatch watch;
  ring_->wait_copied();
  stall_ += watch.seconds();
  step_stall_ += watch.seconds();
}

void StateSaver::poll(const Log& log) {
  if (!running_) return;
  if (ring_->is_copied()) engine_.before_overwrite({});
  if (running_->has_ended) join(log);
}

void StateSaver::join(const Log& log) {
  const std::unique_ptr<Running> ended = std::move(running_);
  const Stopwatch watch;
  if (ended->thread.joinable()) ended->thread.join();
  stall_ += watch.seconds();
  engine_.before_overwrite({});
  for (const auto& [level, message] : ended->messages) log.write(level, message);
  if (ended->error) {
    failure_ = ended->error;
  } else {
    tell_saved(ended->step, ended->seconds, log);
  }
}

void StateSaver::tell_saved(int64_t step, double seconds, const Log& log) {
  int64_t n_bytes = 0;
  for (const StoredSlot& slot : all_slots(engine_)) n_bytes += slot.slot->whole_type().n_bytes();
  const double stall = std::exchange(stall_, 0.0);
  log.info("saved step {}: {} in {:.2f} s, {:.2f} GB/s; steps waited {:.3f} s", step,
           bytes_text(static_cast<double>(n_bytes)), seconds,
           static_cast<double>(n_bytes) / seconds / 1e9, stall);
  SaveTimes times = times_.value_or(SaveTimes{});
  times.total_s += seconds;
  times.stall_s += stall;
  times_ = times;
}

void StateSaver::throw_failure() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void StateSaver::wait(const Log& log) {
  if (running_) join(log);
  throw_failure();
}

void StateSaver::settle(const Log& log) noexcept {
  try {
    wait(log);
  } catch (const std::exception& error) {
    log.warning("{}", error.what());
  }
}

std::optional<SaveTimes> StateSaver::take_times() {
  return std::exchange(times_, std::nullopt);
}

}  // namespace octet
