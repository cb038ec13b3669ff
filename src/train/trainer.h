// A run: model, recipe and data -> steps, evaluations, checkpoints and metrics.
//
// Everything that decides the bits of a step is a function of the configuration, the data and the
// counters in the checkpoint, so a resumed run equals an uninterrupted one bit for bit. Adam's t
// counts applied updates: a step with a gradient that is not finite leaves weights and states alone
// and does not count, but the learning rate and the data go on. Without clipping tensors are left
// alone one by one, and each has the t of its own updates.
//
// Files of a run, in config.out: config.yaml, config.json (the model, as Hugging Face writes it),
// algorithms.json (where a device has any to choose from), metrics.jsonl, telemetry.jsonl,
// TensorBoard's events, ckpt/. Nothing is written before begin(), and nothing by one that resumes a
// run that has come to its end under this configuration.
//
// Threads: one at a time; begin, advance, evaluate, save and end may be called by different ones.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "data/row_reader.h"
#include "infer/adapter_note.h"
#include "io/checkpoint.h"
#include "nn/model.h"
#include "train/calibration.h"
#include "train/engine.h"
#include "train/gemm_audit.h"
#include "train/line_clock.h"
#include "train/row_data.h"
#include "train/run_export.h"
#include "train/run_guards.h"
#include "train/run_interface.h"
#include "train/run_record.h"
#include "train/run_samples.h"
#include "train/run_statistics.h"
#include "train/state_saver.h"
#include "train/step_report.h"
#include "train/stopwatch.h"
#include "train/validation_watch.h"
#include "train/weight_watch.h"

namespace octet {

class StepEnergy;

class Trainer {
 public:
  // Compiles and allocates, and writes the first weights: from the seed, or from model.path.
  Trainer(const RunConfig& config, const Dataset& data, const TrainerMachine& machine);

  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Takes config.out, whose lock is held to the end, resumes, and begins the files. False: the run
  // had come to its end before, and only end() is left.
  bool begin(const RunStart& start, const TrainHooks& hooks);
  // A step with all that follows it (record, evaluation, new scales, checkpoint), or first the
  // step that the run before did and could not write down. Nothing once is_done(). Throws what
  // RunGuards throws. Any other error of a step or of what is written of it (data that cannot be
  // read, a full disk) is thrown once the state, whole in memory, is saved. Any error ends the run:
  // the folder is let go.
  std::optional<StepReport> advance();
  // The last step is done, or a signal came, or edges want other scales.
  bool is_done() const;
  // Waits for the last save, exports, and lets the folder go. Throws Error{numerics} where the run
  // has come to a bad end (run_guards.h).
  TrainResult end();
  // begin() to end().
  TrainResult run(const RunStart& start, const TrainHooks& hooks);

  // One step, without files: what advance() is made of.
  StepReport step();
  // Makes the first step, for its scales' sake (train/run.cpp).
  std::vector<EdgeAlarm> alarms_of_first_step();
  StepOutcome watched_step(const MicroBatches& batches, const StepScalars& scalars,
                           StepReport& report);
  // Mean loss over the first eval_bytes of the validation data; nothing without such data.
  std::optional<double> evaluate();

  // The caller goes on while the state is written (train.async_save), or waits.
  enum class Wait { no, yes };
  // Behind begin(): a checkpoint of the last step, unless there is one.
  void save(const Log& log, Wait wait);
  // True if this rank is the one that writes.
  bool is_root() const { return machine_.rank() == 0; }
  int64_t step_count() const { return attempted_; }
  TrainEngine& engine() { return engine_; }
  const ModelSpec& spec() const { return spec_; }

 private:
  void start(const RunStart& start, const TrainHooks& hooks);
  void start_files(const RunStart& start, const TrainHooks& hooks);
  bool resume(const RunStart& start, const Log& log);
  void restore(const LoadedCheckpoint& checkpoint, const Log& log);
  Manifest manifest() const;
  KeyValues machine_facts() const;
  bool recalibrate(const StepReport& report, const Log& log);
  void check_audit(const StepReport& report) const;
  void read_ahead();
  Batch micro_batch(size_t index);
  RunEvaluation evaluation();  // of validation data that are there
  void take_references();
  void take_references(StartMode mode, const Log& log);
  std::vector<TextSample> due_samples();
  StepReport record();
  StepReport record_left_over();
  StepReport step_to_the_save();
  void save_if_it_fails(const std::function<void()>& work);
  std::string save_before_end(const Log& log);
  std::unique_ptr<EvalRows> eval_rows() const;
  bool is_due(int64_t every) const;
  StepScalars scalars_of(const StepReport& report) const;
  void count_energy();
  std::optional<double> take_joules(const StepReport& report);  // as StepEnergy::take
  void count_skips(const StepOutcome& outcome);
  void read_refusals(const LoadedCheckpoint& checkpoint);
  std::optional<double> train_loss() const;
  void compare_validation(const Manifest& manifest, const Log& log);
  Calibration calibration() const;
  bool is_over() const;  // the last step is done, or the validation loss falls no more
  int64_t n_ranks() const { return config_.parallel.ranks; }
  RunWishes wishes() const;
  RunWishes settled_wishes();
  RunEnding own_ending() const;
  [[noreturn]] void end_with(RunEnding ending) const;
  int64_t checkpoints_to_come() const;
  SaveRequest save_request();
  KeptCheckpoints kept_checkpoints() const;
  void sync_record(const Log& log);
  bool is_finished(const RunStart& start);
  bool seems_finished(const RunStart& start) const;
  TrainResult finished_result(const Log& log);
  RunExport export_of_end() const;
  bool has_best_checkpoint() const { return config_.train.keep_best && watch_.best_step() > 0; }
  void add_memory(TrainResult& result) const;
  void add_data(TrainResult& result) const;
  void finish(TrainResult& result, const Log& log);
  void fail_bad_end(const std::optional<StepReport>& last, const Log& log) const;
  std::string file(std::string_view name) const { return join_path(config_.out, name); }

  RunConfig config_;
  TrainerMachine machine_;
  ModelSpec spec_;
  std::unique_ptr<RunSamples> samples_;  // where train.sample_prompts has any
  RowLoader loader_;
  std::unique_ptr<RowReader> reader_;   // of the rows of a run's steps, from begin() on
  std::string autotune_cache_problem_;  // why recorded algorithms were not taken; before the engine
  TrainEngine engine_;
  std::string loaded_;  // how fast a model's weights came; empty where there were none
  Dataset data_;
  EvalAmount val_amount_;  // of what an evaluation reads
  std::string val_identity_;
  std::unique_ptr<GemmAudit> audit_;  // where train.audit asks for it
  std::unique_ptr<RunRecord> record_;
  std::unique_ptr<Checkpoints> checkpoints_;
  std::unique_ptr<FileLock> lock_;       // of the run's folder, from begin() to end()
  std::unique_ptr<StateSaver> saver_;    // after the engine, whose memory it reads
  std::optional<AdapterNote> adapters_;  // where adapters are trained
  std::optional<int64_t> saved_step_;
  ValidationWatch watch_;

  int64_t attempted_ = 0, skipped_ = 0, tokens_ = 0;
  int64_t overflowed_ = 0, rescaled_ = 0;    // skipped for the loss scale; Calibration's
  std::map<std::string, int64_t> refusals_;  // without clipping: updates that a tensor missed
  bool has_references_ = false;              // Dataset::references have their numbers
  bool is_trial_ = false;                    // of scales: the step is sampled
  RunGuards guards_;
  std::shared_ptr<StepEnergy> energy_;       // from the first step on
  std::optional<WeightWatch> weight_watch_;  // of the first steps of this process
  std::optional<StepReport> last_;           // of this process, written down
  std::optional<StepReport> unrecorded_;     // a step that is done, and not yet written down

  // From begin() on.
  TrainHooks hooks_;
  TrainResult result_;
  StepTally tally_;
  Stopwatch since_begin_;
  LineClock line_clock_;
  bool is_running_ = false;  // to the end or to an error
};

}  // namespace octet
