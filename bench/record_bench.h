// Training to a validation loss: how long each recipe takes, and how much energy.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "config/load.h"

namespace octet {

struct RecordCase {
  std::function<LoadedConfig(const std::string& recipe)> config;
  std::vector<std::string> recipes;
  double loss = 0;     // validation loss to reach, nats per token
  int64_t every = 25;  // steps between two evaluations
};

struct Record {
  std::string recipe;
  int64_t parameters = 0;
  int64_t steps = 0;        // taken
  bool is_reached = false;  // else the run's steps were over first
  double loss = 0;          // validation loss of the last evaluation
  // From the first step to the last, without what comes before (reading, compiling, choosing
  // kernels) and without evaluations.
  double seconds = 0;
  std::optional<double> joules;  // in these seconds, where the machine counts them
  double start_seconds = 0;      // what came before
  int64_t tokens = 0;
  int64_t planned_bytes = 0;
};

// Each recipe trains the same model on the same rows, from the same weights, and stops where an
// evaluation reaches the loss, or where train.steps are over; `on_record` is called then. Writes no
// run folder. Throws as open_run() and Trainer do, and Error{invalid_argument} where there is no
// validation text.
void bench_records(const BenchMachine& machine, const RecordCase& what,
                   const std::function<void(const Record&)>& on_record);

}  // namespace octet
