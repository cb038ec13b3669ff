// Writes a run's checkpoints: at once, or in the background of the steps that follow.
//
// In the background the state is copied out through a ring of host memory (CopyRing) and written by
// a thread of its own, with the bytes and the order of syncs that a save at once has. The next
// update waits until all that it would overwrite has been copied: at once where the ring holds the
// whole state, else when all but a ring of it has been written. One save runs at a time.
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
#include "io/checkpoint.h"
#include "runtime/copy_ring.h"
#include "train/engine.h"
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
  };
  // Into the checkpoints of `folder`. The ring is allocated here. All must outlive it.
  StateSaver(Files& files, std::string folder, TrainEngine& engine, const Options& options);
  // Waits for the thread; what it failed with is lost, unless settle() was called.
  ~StateSaver();
  StateSaver(const StateSaver&) = delete;
  StateSaver& operator=(const StateSaver&) = delete;

  // Both first wait for a save that still runs, and throw what it failed with.
  void save_now(const SaveRequest& request, const Log& log);
  void save_behind(SaveRequest request, const Log& log);

  // Between steps: whether the save has come to its end, which is then told. Does not throw.
  void poll(const Log& log);
  // Throws what a save in the background has failed with, once. Error{io}, as Checkpoints::save.
  void throw_failure();
  // Waits for the save that runs, and throws what it failed with.
  void wait(const Log& log);
  // The same where another error is on its way: a warning.
  void settle(const Log& log) noexcept;

  // Of the saves that have ended since the last call; nothing where none has.
  std::optional<SaveTimes> take_times();
  // Seconds for which steps have waited for copies, of which the last call did not know.
  double take_step_stall() { return std::exchange(step_stall_, 0.0); }

 private:
  struct Running {
    int64_t step = 0;
    CheckpointContents contents = {};
    KeptCheckpoints keep{1};
    Stopwatch watch = {};
    std::atomic<bool> has_ended = false;
    double seconds = 0;
    std::exception_ptr error = nullptr;
    std::vector<std::pair<LogLevel, std::string>> messages = {};  // of the thread
    std::thread thread = {};
  };
  CheckpointContents contents(const SaveRequest& request, bool from_ring);
  void write(Running& running);
  void join(const Log& log);
  void wait_copied();
  void tell_saved(int64_t step, double seconds, const Log& log);

  Files& files_;
  std::string folder_;
  TrainEngine& engine_;
  std::unique_ptr<CopyRing> ring_;
  std::unique_ptr<Running> running_;
  std::exception_ptr failure_;
  bool has_told_wait_ = false;
  double stall_ = 0, step_stall_ = 0;  // of saves that have not been told of, of the step
  std::optional<SaveTimes> times_;
};

}  // namespace octet
