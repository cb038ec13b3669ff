// A run from its beginning to its end: a trainer, and another wherever it goes on with other scales
// of edges (recipe.calibrate, train/calibration.h).
//
// Threads: as Trainer.
#pragma once

#include <exception>
#include <memory>
#include <optional>

#include "train/trainer.h"

namespace octet {

class Run {
 public:
  // Finds the first scales where recipe.calibrate asks for them, and begins; a run that had come to
  // its end is over then. `data` and `machine` must outlive it. Throws as Trainer does.
  Run(RunConfig config, const Dataset& data, const TrainerMachine& machine, RunStart start,
      TrainHooks hooks);

  // A step and all that follows it; behind the last one the end of the run, and behind one that
  // asks for other scales the next trainer. Nothing once the run is over. An error ends the run:
  // its trainer goes, and each later call throws the same.
  std::optional<StepReport> advance();
  TrainResult to_end();

  // At hand, also once the run is over. Throws what ended the run.
  Trainer& trainer();
  // Nothing while the run goes on.
  const std::optional<TrainResult>& result() const { return result_; }

 private:
  bool goes_on() const;
  void begin();
  void end_trainer();

  RunConfig config_;
  const Dataset& data_;
  TrainerMachine machine_;
  RunStart start_;
  TrainHooks hooks_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<TrainResult> result_;
  std::exception_ptr error_;
};

}  // namespace octet
