#include "train/state_saver.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"
#include "base/hash.h"
#include "base/units.h"
#include "train/state_io.h"

namespace octet {
namespace {

constexpr uint64_t kSampleBytes = 4096;  // of a rank
// Bytes that a run writes of its first steps; later it ends before it takes a checkpoint's room.
constexpr uint64_t kFirstSteps = 64 << 10;

CopyRing::Source ring_source(const OwnPart& own) {
  return {own.data, static_cast<int64_t>(own.part.n_bytes)};
}

// The tensors as they come out of the ring, in the order of the file.
std::vector<TensorSource> ring_tensors(std::vector<StoredSlot> slots, const RankPart& rank,
                                       CopyRing& ring, std::vector<CopyRing::Source>& sources) {
  std::vector<TensorSource> tensors;
  tensors.reserve(slots.size());
  for (const StoredSlot& slot : slots) tensors.push_back({slot.decl, {}});
  for (const TensorSource* next : in_file_order(tensors)) {
    const auto index = static_cast<size_t>(next - tensors.data());
    const OwnPart own = own_part(slots[index], rank);
    tensors[index].emit = [&ring, at = sources.size()](const ByteSink& sink) {
      ring.take(at, sink);
    };
    tensors[index].part = own.part;
    sources.push_back(ring_source(own));
  }
  return tensors;
}

}  // namespace

StateSaver::StateSaver(Files& files, std::string folder, TrainEngine& engine,
                       const Options& options)
    : files_(files),
      folder_(std::move(folder)),
      engine_(engine),
      group_(options.group),
      room_(files, folder_, checkpoint_bytes()) {
  if (group_ != nullptr) rank_ = {.rank = group_->rank(), .ranks = group_->size()};
  if (!options.in_background) return;
  std::vector<CopyRing::Source> sources;
  for (const InputKind kind : {InputKind::parameter, InputKind::state}) {
    for (const StoredSlot& slot : stored_slots(engine.arenas(), engine.layout(), kind)) {
      sources.push_back(ring_source(own_part(slot, rank_)));
    }
  }
  const int64_t n_bytes = std::min(options.buffer_bytes, CopyRing::bytes_for(sources));
  ring_ = std::make_unique<CopyRing>(engine.arenas().device(), n_bytes);
}

StateSaver::~StateSaver() {
  join();
  engine_.before_overwrite({});
}

CheckpointContents StateSaver::contents(const SaveRequest& request, SaveMode mode) {
  Arenas& arenas = engine_.arenas();
  const Layout& layout = engine_.layout();
  CheckpointContents all{.manifest = request.manifest,
                         .model = {},
                         .optim = {},
                         .model_metadata = request.model_metadata};
  if (mode == SaveMode::sync) {
    all.model = slot_sources(arenas, layout, InputKind::parameter, rank_);
    all.optim = slot_sources(arenas, layout, InputKind::state, rank_);
    return all;
  }
  std::vector<CopyRing::Source> sources;
  const auto tensors = [&](InputKind kind) {
    return ring_tensors(stored_slots(arenas, layout, kind), rank_, *ring_, sources);
  };
  all.model = tensors(InputKind::parameter);
  all.optim = tensors(InputKind::state);
  arenas.device().synchronize();
  ring_->begin(std::move(sources));
  return all;
}

std::string StateSaver::agree_on_folder(const std::function<std::string()>& make) {
  std::array<char, 256> name{};
  if (is_root()) file_name(make()).copy(name.data(), name.size() - 1);
  if (group_ != nullptr)
    group_->broadcast(reinterpret_cast<std::byte*>(name.data()), std::ssize(name), 0);
  return join_path(folder_, name.data());
}

// The way that a save's bytes take, from the tensor that this rank has most of.
std::vector<std::byte> StateSaver::sample() {
  std::optional<OwnPart> most;
  for (const InputKind kind : {InputKind::parameter, InputKind::state}) {
    for (const StoredSlot& slot : stored_slots(engine_.arenas(), engine_.layout(), kind)) {
      const OwnPart own = own_part(slot, rank_);
      if (!most || own.part.n_bytes > most->part.n_bytes) most = own;
    }
  }
  std::vector<std::byte> bytes(most ? std::min(kSampleBytes, most->part.n_bytes) : 0);
  const int64_t n_bytes = std::ssize(bytes);
  if (n_bytes > 0)
    engine_.arenas().device().copy_out_on_side_stream(bytes.data(), most->data, n_bytes);
  return bytes;
}

// Bytes of both tensor files, and some for others, whose manifest has a few lines for each tensor.
uint64_t StateSaver::checkpoint_bytes() const {
  constexpr uint64_t kOthers = 64 << 10, kLines = 256;
  uint64_t n_bytes = kOthers;
  for (const InputKind kind : {InputKind::parameter, InputKind::state}) {
    std::vector<TensorSource> tensors;
    for (StoredSlot& slot : stored_slots(engine_.arenas(), engine_.layout(), kind))
      tensors.push_back({std::move(slot.decl), {}});
    n_bytes += SafetensorsLayout(tensors).n_bytes + kLines * tensors.size();
  }
  return n_bytes;
}

void StateSaver::rehearse(int64_t n_more, const Log& log) {
  SaveRehearsal rehearsal(files_, folder_);
  engine_.arenas().device().synchronize();
  const std::string temporary = agree_on_folder([&] {
    rehearsal.check_room(checkpoint_bytes() + kFirstSteps, n_more, log);
    return rehearsal.begin();
  });
  const uint64_t at = static_cast<uint64_t>(rank_.rank) * kSampleBytes;
  PositionalHash all;
  for (const uint64_t own : gather_value(group_, rehearsal.write(temporary, at, sample())))
    all.add(own);
  if (is_root()) rehearsal.verify(temporary, all.digest());
}

void StateSaver::start(const SaveRequest& request, SaveMode mode, const Log& log) {
  room_.note_step(0, false, log);  // no save runs: where saves follow each other, only here
  std::string temporary;
  if (group_ != nullptr) {
    temporary = agree_on_folder(
        [&] { return Checkpoints(files_, folder_, log).begin(request.manifest.step); });
  }
  running_ = std::make_unique<Running>();
  Running& running = *running_;
  running.temporary = std::move(temporary);
  running.keep = request.keep;
  running.contents = contents(request, mode);
  if (mode == SaveMode::async) engine_.before_overwrite([this] { wait_copied(); });
  const auto write = [this, &running](Checkpoints& checkpoints) {
    if (group_ == nullptr) {
      checkpoints.save(running.contents, running.keep);
      return complete;
    }
    running.own = checkpoints.write_part(running.temporary, running.contents,
                                         is_root() ? FileHeader::yes : FileHeader::no);
    return written;
  };
  launch(mode, write, log);
  stall_ += running.watch.seconds();
}

void StateSaver::save_now(const SaveRequest& request, const Log& log) {
  wait(log);
  start(request, SaveMode::sync, log);
  wait(log);
}

void StateSaver::save_async(const SaveRequest& request, const Log& log) {
  if (!ring_) return save_now(request, log);
  poll(log);
  if (running_ && !std::exchange(has_told_wait_, true)) {
    log.warning(
        "step {} is to be saved before step {} has been written: each such save waits (a larger "
        "train.save_every, or a faster disk)",
        request.manifest.step, running_->step());
  }
  wait(log);
  start(request, SaveMode::async, log);
}

void StateSaver::launch(SaveMode mode, const std::function<Status(Checkpoints&)>& work,
                        const Log& log) {
  if (mode == SaveMode::async) {
    try {
      running_->thread = std::thread([this, work] { run(work); });
      return;
    } catch (const std::system_error& error) {
      log.warning("step {} is saved at once: no thread could be made ({})", running_->step(),
                  error.what());
    }
  }
  run(work);
}

// In the thread.
void StateSaver::run(const std::function<Status(Checkpoints&)>& work) {
  Running& running = *running_;
  int status = failed;
  try {
    Checkpoints checkpoints(files_, folder_, Log([&](LogLevel level, const std::string& message) {
                              running.messages.emplace_back(level, message);
                            }));
    status = work(checkpoints);
  } catch (...) {
    running.error = std::current_exception();
  }
  if (ring_) ring_->end();
  running.seconds = running.watch.seconds();
  running.status = status;
}

void StateSaver::join() {
  if (!running_ || !running_->thread.joinable()) return;
  const Stopwatch watch;
  running_->thread.join();
  stall_ += watch.seconds();
}

// Work that computing has queued goes on while the host waits: only what is left when it has ended
// is time lost.
void StateSaver::wait_copied() {
  if (ring_->is_copied()) return;
  engine_.arenas().device().synchronize();
  const Stopwatch watch;
  ring_->wait_copied();
  stall_ += watch.seconds();
  step_stall_ += watch.seconds();
}

// All ranks see the same statuses, and so do the same.
void StateSaver::advance(Block block, const Log& log) {
  while (running_) {
    Running& running = *running_;
    if (block == Block::yes) join();
    const std::vector<int> all = gather_value(group_, running.status.load());
    if (std::ranges::find(all, failed) != all.end()) return end_failed(log);
    if (all[0] == complete) return end_well(log);
    const bool is_written = std::ranges::find(all, writing) == all.end();
    if (is_written && running.all.empty()) {
      join();
      running.all = gather_value(group_, running.own);
      if (is_root()) {
        const auto finish = [&running](Checkpoints& checkpoints) {
          checkpoints.complete(running.temporary, running.contents, running.all, running.keep);
          return complete;
        };
        launch(block == Block::yes ? SaveMode::sync : SaveMode::async, finish, log);
      }
    }
    if (block == Block::no) return;
  }
}

void StateSaver::tell_messages(const Log& log) {
  for (const auto& [level, message] : running_->messages) log.write(level, message);
}

void StateSaver::end_well(const Log& log) {
  join();
  tell_messages(log);
  const std::unique_ptr<Running> ended = std::move(running_);
  engine_.before_overwrite({});
  newest_ = ended->step();
  const auto n_bytes = static_cast<double>(stored_bytes(engine_.layout()));
  const double stall = std::exchange(stall_, 0.0);
  if (is_root()) {
    log.info("saved step {}: {} in {:.2f} s, {}/s; steps waited {:.3f} s", ended->step(),
             bytes_text(n_bytes), ended->seconds, bytes_text(n_bytes / ended->seconds), stall);
  }
  SaveTimes times = times_.value_or(SaveTimes{});
  times.total_s += ended->seconds;
  times.stall_s += stall;
  times_ = times;
}

// Nobody removes what another rank writes, and no rank ends before the others know.
void StateSaver::end_failed(const Log& log) {
  join();
  gather_value(group_, 0);
  if (group_ != nullptr && is_root())
    Checkpoints(files_, folder_, log).abandon(running_->temporary);
  gather_value(group_, 0);
  tell_messages(log);
  const std::unique_ptr<Running> ended = std::move(running_);
  engine_.before_overwrite({});
  failure_ = ended->error;
  has_peer_failed_ = !ended->error;
}

void StateSaver::poll(const Log& log) {
  if (!running_) return;
  if (ring_ && ring_->is_copied()) engine_.before_overwrite({});
  advance(Block::no, log);
}

void StateSaver::throw_failure() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  if (std::exchange(has_peer_failed_, false)) gather_value(group_, 0);  // throws, for it has ended
}

void StateSaver::give_up(const Log& log) {
  advance(Block::yes, log);
  has_peer_failed_ = false;
  try {
    throw_failure();
  } catch (const std::exception& error) {
    log.warning("{}", error.what());
  }
}

void StateSaver::wait(const Log& log) {
  advance(Block::yes, log);
  throw_failure();
}

void StateSaver::settle(const Log& log) noexcept {
  try {
    if (group_ == nullptr) return wait(log);
    join();
    if (!running_) return;
    if (is_root() && running_->status != complete)
      Checkpoints(files_, folder_, log).abandon(running_->temporary);
    if (running_->error) std::rethrow_exception(running_->error);
  } catch (const std::exception& error) {
    log.warning("{}", error.what());
  }
}

}  // namespace octet
