// A training run, step by step: what `octet train` does, with the same files and the same bits.
//
//   octet::Training training(machine, {.file = "recipes/llama-3m.yaml", .sets = {"out=runs/a"}});
//   while (const auto step = training.step()) std::printf("%f\n", step->loss);
//
// The configuration's keys are those of docs/configuration.md. model.path starts from a Hugging
// Face folder; without it the weights are initialized from train.seed. Evaluations, checkpoints,
// the export and metrics.jsonl come when the configuration says so, in the folder `out`, which is
// held for this process until the run is over or the object goes. Checkpoints of train.save_every
// may still be written while the next steps are taken (train.async_save).
//
// Determinism: on the CPU, losses and weights are the same bits for any number of threads at one
// isa, and those of `octet train`; on a GPU with train.deterministic. A resumed run equals one that
// was not interrupted.
//
// Threads: each Training may be used by one thread at a time, and by another for each call;
// different ones do not disturb each other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "octet/machine.h"
#include "octet/messages.h"

namespace octet {

// One of file and text, then the overrides, of which the last wins.
struct TrainingConfig {
  std::string file = {};               // of YAML
  std::string text = {};               // YAML, of which JSON is a part
  std::vector<std::string> sets = {};  // "train.steps=10", as behind --set
};

enum class TrainingStart : uint8_t {
  fresh,      // where nothing of a run lies in `out`
  resume,     // from the newest whole checkpoint, or fresh where there is none
  overwrite,  // fresh, in the place of a run that Octet wrote
};

struct TrainingOptions {
  TrainingStart start = TrainingStart::fresh;
  MessageSink on_message = {};
};

// One step; times in ms or s, memory in bytes.
struct TrainingStep {
  int64_t step = 0, steps = 0;     // this one, from 1, and how many the run has
  float loss = 0;                  // nats per token, mean over the step's labels
  float grad_norm = 0;             // before clipping
  double lr = 0;                   // learning rate
  int64_t tokens = 0;              // since the start of the run
  double tokens_per_s = 0;         // of this step
  double time_ms = 0;              // of this step, without evaluation and saving
  double seconds_left = 0;         // of the run, by the time that its steps have taken so far
  int64_t memory_bytes = 0;        // allocated by the plans
  bool is_skipped = false;         // a gradient was not finite: weights and states are as before
  bool has_overflowed = false;     // skipped for the loss scale's sake
  std::optional<double> val_loss;  // nats per token, where this step was evaluated
  std::string json = {};           // its line of metrics.jsonl (docs/formats/run.md)
};

// Results of a run that is over.
struct TrainingResult {
  int64_t step = 0;  // the last one done
  // Mean of the run's last 20 finite losses, of steps before a resume too, as metrics.jsonl has
  // them; a NaN where there is none.
  double train_loss = 0;
  std::optional<double> val_loss;  // of the last evaluation
  int64_t best_step = 0;           // of the lowest validation loss; 0: there was none
  double best_val_loss = 0;        // there
  double tokens_per_s = 0;         // over the steps of this process
};

class Training {
 public:
  // Reads the data, compiles, allocates, and initializes, loads or restores the weights. Throws
  // Error: invalid_argument for the configuration and for `out` that is no place for it (as for
  // parallel.ranks above 1, which `octet train` alone runs), bad_data, io, device where it does not
  // fit into memory.
  Training(const Machine& machine, const TrainingConfig& config,
           const TrainingOptions& options = {});
  // Ends the run where it is: steps since the newest checkpoint are lost.
  ~Training();
  Training(Training&&) noexcept;
  Training& operator=(Training&&) noexcept;

  // The next step, with what comes after it (evaluation, checkpoint; after the last one the
  // export). Nothing once the run is over: its last step is done, or train.patience has run out.
  // Throws Error{numerics} after train.max_nonfinite_steps steps in a row that are not finite, or
  // train.max_zero_gradients that learn nothing, and where the run ends with such a loss; an
  // error of data or of files once the state is saved. Each further call throws the same.
  std::optional<TrainingStep> step();

  // Mean loss over the configured part of the validation data, nats per token; nothing without such
  // data. Changes nothing.
  std::optional<double> evaluate();

  // Writes a checkpoint of this step into `out`, unless there is one; the whole files are there
  // when it returns. octet::Model and the program read it. Before the first step it holds the first
  // weights. Throws Error{io}.
  void save();

  int64_t steps_done() const;  // those before a resume among them
  const std::string& out() const;
  // The resolved configuration, as config.yaml has it.
  const std::string& config() const;
  // Nothing while the run goes on.
  std::optional<TrainingResult> result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace octet
