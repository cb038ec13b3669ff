// The compiled side of training: a program's functions, bound to memory, and what one optimizer
// step asks of them. It knows nothing of schedules, files and counters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "compile/program.h"
#include "data/rows.h"
#include "infer/batch_inputs.h"
#include "infer/evaluate.h"
#include "runtime/nonfinite.h"
#include "runtime/rank_self_test.h"
#include "train/step_report.h"
#include "train/weight_state.h"

namespace octet {

struct StepScalars {
  float lr = 0;
  int64_t applied = 1;   // t: updates applied, this one included
  float clip = 0;        // 0: no clipping
  uint32_t attempt = 0;  // attempted step: keys the random bits of stochastic rounding
  // Without clipping: t of the parameters whose t is another than the others'.
  std::map<std::string, int64_t> own = {};
};

// The micro-batches of a step, each read when it is needed: memory holds one at a time. Of D ranks
// each has its own; the i-th of rank r is the (i D + r)-th of the step.
struct MicroBatches {
  size_t count = 0;       // of this rank
  ItemCounts items = {};  // that losses count, of all together, and of all ranks
  std::function<Batch(size_t index)> read;
};

class TrainEngine {
 public:
  // Compiles the training functions and evaluate, for each sequence length that options.shorter
  // names too, and training functions for options.batches; the arenas are as large as the largest
  // needs. Throws
  // Error{device} where they fit neither options.memory_budget nor the device's memory.
  // `group`: of options.parallel.ranks ranks, each with an engine that makes the same calls;
  // nullptr where this is the only one.
  TrainEngine(ProgramOptions options, Device& device, Catalogue& catalogue, Group* group = nullptr);

  // One optimizer step; as many batches as the program accumulates, each of a size that the
  // program has, on all ranks the same. Each micro-batch's loss is
  // divided by the number of its items in the whole step; the losses are added in the order of the
  // step's micro-batches, in double.
  // What `read` throws goes on to the caller, with weights and states as before the step.
  StepOutcome step(const MicroBatches& batches, const StepScalars& scalars);
  StepOutcome step(std::span<const Batch> micro_batches, const StepScalars& scalars);
  // Makes a batch of step() ready for the device beside what runs there (infer/batch_inputs.h);
  // for any thread.
  void stage(Batch& batch) const { staging_->stage(batch); }
  // False after an error in the middle of an update: weights and states are of no step then.
  bool is_whole() const { return is_whole_; }

  // Makes what is derived from parameters, where a program keeps any, after they were written from
  // outside. The first step or evaluation does it by itself.
  void prepare_state();

  // From now on a step whose loss or gradient is not finite runs twice up to its update, launch by
  // launch, on the same batches, weights and states, and its outcome says where the first such
  // value came to be. Then it goes on as it would have. Every step first copies the states that
  // change before the update (histories of delayed scaling, the loss scale), and nothing is
  // recorded. Without clipping it wants Release::at_end.
  void enable_tracing();

  // Batches of rows take turns over the ranks; those of a turn have one length, of the program's.
  RunEvaluation evaluate(const EvalRows& rows);
  // The value of each metric of the losses for each sample, in order (infer/evaluate.h).
  std::vector<SampleMetric> sample_metrics(const EvalRows& rows);

  // Logits behind tokens [first, first + n) of a row of options.texts, f32 [n, vocab], as the
  // weights are. All ranks call it, and have the first one's.
  std::vector<float> logits(const Batch& row, int64_t first, int64_t n);

  // Watches every launch of step() from now on; an empty one watches nothing, and costs nothing.
  // Returns the one before.
  StepObserver observe(StepObserver observer) {
    return std::exchange(observer_, std::move(observer));
  }

  // Called once, by the next step, before anything is launched that overwrites a parameter or state
  // of more than CopyRing::kSmall bytes; an empty one calls off. It must not throw.
  void before_overwrite(std::function<void()> wait) { before_overwrite_ = std::move(wait); }

  bool has_loss_scale() const { return static_cast<bool>(program_->options().loss_scale); }
  const std::vector<LossTerm>& losses() const { return program_->options().losses; }
  Arenas& arenas() { return *arenas_; }
  const Layout& layout() const { return program_->layout(); }
  // Proof of the ranks when they connected; nothing where their devices do not reach each other.
  const std::optional<SelfTestResult>& self_test() const { return self_test_; }
  // True if a function has a step of a row whose name begins so.
  bool has_row(std::string_view begin) const;
  int64_t planned_bytes() const;  // of all arenas
  int64_t state_bytes() const;    // masters and moments
  // Of the training functions on rows of the usual size the plan that takes the most memory.
  const Plan& largest_plan() const;

 private:
  void allocate(Device& device, Catalogue& catalogue, const std::vector<FunctionKey>& keys);
  // A step up to where its last function is launched.
  struct BegunStep {
    BoundPlan* last = nullptr;  // that updates
    std::vector<float> losses;  // of the micro-batches that have run
    uint64_t rows = 0;          // a hash of them, between ranks
  };
  void run(BoundPlan& function, const std::function<void()>& before_update = {});
  BegunStep begin_step(const MicroBatches& batches, const StepScalars& scalars);
  void run_update(BegunStep& step, const std::function<void()>& before_update);
  std::optional<NonfiniteSite> trace_nonfinite(const MicroBatches& batches,
                                               const StepScalars& scalars);
  bool is_to_trace(const BegunStep& step, const std::optional<LossScaleReport>& loss_scale) const;
  void write_scalars(BoundPlan& function, const StepScalars& scalars);
  void prepare_once();
  // All that reads weights goes through here. Gathers them first where the function reads some that
  // are not whole; all ranks call it.
  BoundPlan& with_weights(BoundPlan& reader);
  std::optional<LossScaleReport> read_loss_scale();
  void save_histories();
  BoundPlan& function(std::string_view name) { return function({name, size_}); }
  BatchSize size_of(const Batch& batch) const;
  BoundPlan& function(const FunctionKey& key);
  void begin_scales();

  std::unique_ptr<Program> program_;
  BatchSize size_;
  Group* group_;
  std::unique_ptr<Arenas> arenas_;
  std::optional<SelfTestResult> self_test_;
  std::map<FunctionKey, std::unique_ptr<BoundPlan>> bound_;  // the functions in use
  std::unique_ptr<BatchStaging> staging_;
  StepObserver observer_;
  std::function<void()> before_overwrite_;
  WeightState weights_;
  bool prepared_ = false;  // derived inputs are made
  bool is_whole_ = true;
  bool is_tracing_ = false;

  // A state, and its value before the last step.
  struct SavedState {
    std::byte* at = nullptr;
    std::vector<std::byte> bytes;
  };
  std::vector<SavedState> histories_;
};

}  // namespace octet
