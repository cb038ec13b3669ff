// Training steps on random tokens, to be timed.
#pragma once

#include <memory>

#include "bench/machine.h"
#include "config/run_config.h"
#include "nn/model.h"
#include "train/engine.h"

namespace octet {

class StepRunner {
 public:
  // Compiles, allocates and writes first weights. Only the shape, recipe and optimizer of the
  // configuration matter, and whether documents are isolated: a row then has so many, of one
  // length. With a group, one rank's steps.
  StepRunner(const RunConfig& config, int64_t documents, const BenchMachine& machine,
             Group* group = nullptr);

  // One optimizer step, accumulation included; its time with the host's work. With a profile, one
  // that is watched.
  double step_ms(Profile* profile = nullptr);

  // Outcomes of the first step and the last one; the batch is the same in all.
  const StepOutcome& first() const { return first_; }
  const StepOutcome& last() const { return last_; }
  int64_t n_steps() const { return n_steps_; }

  const ModelSpec& spec() const { return spec_; }
  int64_t tokens() const;  // of one step
  // Useful work of one step: 6 for each token and parameter that multiplies, and causal attention's
  // products. What is computed twice to save memory does not count.
  double model_flops() const;
  // The ceiling that this recipe's products can reach.
  double gemm_rate(const Ceilings& ceilings) const;
  int64_t planned_bytes() const { return engine_.planned_bytes(); }
  std::string shape_text() const;  // "llama 25.96 M, 8 x 256 tokens"

 private:
  RunConfig config_;
  ModelSpec spec_;
  TrainEngine engine_;
  std::vector<Batch> batches_;
  StepOutcome first_, last_;
  int64_t n_steps_ = 0;
};

}  // namespace octet
