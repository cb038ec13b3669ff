// Writes a run's checkpoints: at once, or in the background of the steps that follow.
//
// In the background the state is copied out through a ring of host memory (CopyRing) and written by
// a thread of its own, with the bytes and the order of syncs that a save at once has. The next
// update waits until all that it would overwrite has been copied: at once where the ring holds the
// whole state, else when all but a ring of it has been written. One save runs at a time.
//
// Several ranks write the same files at once, each its part (state_io.h). All make the
// same calls; between steps they tell each other how far they are, and when all have written and
// synced, rank 0 completes the checkpoint, in the background as well.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "comm/group.h"
#include "io/checkpoint.h"
#include "io/save_room.h"
#include "runtime/copy_ring.h"
#include "train/engine.h"
#include "train/state_io.h"
#include "train/step_report.h"
#include "train/stopwatch.h"

namespace octet {

struct SaveRequest {
  Manifest manifest;
  KeyValues model_metadata = {};
  KeptCheckpoints keep{1};
};

class StateSaver {
 public:
  struct Options {
    bool in_background = true;  // where the caller does not wait
    int64_t buffer_bytes = 0;   // of the ring, at most
    Group* group = nullptr;     // the ranks that save together; nullptr: there is one
  };
  // Into the checkpoints of `folder`. The ring is allocated here. All must outlive it.
  StateSaver(Files& files, std::string folder, TrainEngine& engine, const Options& options);
  // Waits for the thread; what it failed with is lost, unless settle() was called.
  ~StateSaver();
  StateSaver(const StateSaver&) = delete;
  StateSaver& operator=(const StateSaver&) = delete;

  // Before the first step: what a save will need, on every rank (io/save_room.h). `n_more`:
  // checkpoints that will lie in the folder besides those that do. Throws Error{io}.
  void rehearse(int64_t n_more, const Log& log);

  // After a step of which so many bytes were written, on rank 0: whether the next ones may take the
  // room that a checkpoint needs (io/save_room.h).
  void note_step(uint64_t n_written, const Log& log) {
    room_.note_step(n_written, running_ != nullptr, log);
  }
  bool is_short_of_room() const { return room_.is_short(); }

  // Both first wait for a save that still runs, and throw what it failed with.
  void save_now(const SaveRequest& request, const Log& log);
  void save_async(const SaveRequest& request, const Log& log);

  // Between steps: whether the save has come to its end, which is then told. What it has failed
  // with waits for throw_failure().
  void poll(const Log& log);
  // Throws what a save in the background has failed with, once: Error{io}, as Checkpoints::save. On
  // the other ranks an error that says which rank has ended.
  void throw_failure();
  // Waits for the save that runs; a failure is a warning, for another save follows. All ranks call
  // it.
  void give_up(const Log& log);
  // Waits for the save that runs, and throws what it failed with.
  void wait(const Log& log);
  // Waits for this rank's thread where another error is on its way; a failure is a warning.
  void settle(const Log& log) noexcept;

  // The step of the newest checkpoint that came to its end here, or that was noted.
  std::optional<int64_t> newest_step() const { return newest_; }
  void note_newest(int64_t step) { newest_ = step; }
  // Times of the saves that have ended since the last call; nothing where none has.
  std::optional<SaveTimes> take_times() { return std::exchange(times_, std::nullopt); }
  // Seconds for which steps have waited for copies, of which the last call did not know.
  double take_step_stall() { return std::exchange(step_stall_, 0.0); }

 private:
  enum Status : int { writing, written, complete, failed };
  enum class SaveMode { sync, async };
  enum class Block { no, yes };

  struct Running {
    CheckpointContents contents = {};
    KeptCheckpoints keep{1};
    std::string temporary = {};  // of ranks: the folder they write in
    Stopwatch watch = {};
    double seconds = 0;
    PartHashes own = {};
    std::vector<PartHashes> all = {};  // once all ranks have written
    std::atomic<int> status = writing;
    std::exception_ptr error = nullptr;
    std::vector<std::pair<LogLevel, std::string>> messages = {};  // of the thread
    std::thread thread = {};

    int64_t step() const { return contents.manifest.step; }
  };

  void start(const SaveRequest& request, SaveMode mode, const Log& log);
  CheckpointContents contents(const SaveRequest& request, SaveMode mode);
  // The folder that rank 0 makes; every rank has its path.
  std::string agree_on_folder(const std::function<std::string()>& make);
  std::vector<std::byte> sample();
  uint64_t checkpoint_bytes() const;
  // Runs it, in a thread where that is possible; its status is what the work gives.
  void launch(SaveMode mode, const std::function<Status(Checkpoints&)>& work, const Log& log);
  void run(const std::function<Status(Checkpoints&)>& work);
  void join();
  void advance(Block block, const Log& log);
  void end_well(const Log& log);
  void end_failed(const Log& log);
  void tell_messages(const Log& log);
  void wait_copied();
  bool is_root() const { return rank_.rank == 0; }

  Files& files_;
  std::string folder_;
  TrainEngine& engine_;
  Group* group_;
  RankPart rank_;
  SaveRoom room_;
  std::unique_ptr<CopyRing> ring_;
  std::unique_ptr<Running> running_;
  std::exception_ptr failure_;
  bool has_peer_failed_ = false, has_told_wait_ = false;
  std::optional<int64_t> newest_;
  double stall_ = 0, step_stall_ = 0;  // of saves that have not been told of, of the step
  std::optional<SaveTimes> times_;
};

}  // namespace octet
