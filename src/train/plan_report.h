// The work of a run and the memory it takes, from its plans: nothing runs, nothing is allocated.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/ordered_json.h"
#include "compile/program.h"
#include "config/run_config.h"
#include "nn/model.h"
#include "passes/scalify/count.h"
#include "plan/report.h"
#include "train/step_transfers.h"

namespace octet {

// {measured, at_run_time, constant, folded}.
OrderedJson rescales_json(const RescaleCounts& counts);
// plan.json of a run, for its reports: {"rescales": {...}} of its step; none where a step has none.
void write_plan(Files& files, const std::string& path, const Plan& plan);

enum class WithBuffers : uint8_t { no, yes };

class PlanReport {
 public:
  // Compiles the training functions; the catalogue must outlive it. Throws as a run would.
  // Reads the RMS of weights that the run would load, where its recipe predicts scales.
  // ranks_a_host: whose sums come first (ParallelOptions).
  PlanReport(const Files& files, const RunConfig& config, const ModelSpec& spec,
             const Catalogue& catalogue, int64_t ranks_a_host = 0);

  // The function of a training step that needs most memory: it stands for the run.
  const Plan& largest() const { return *largest_; }
  const Program& program() const { return *program_; }
  StepTransfers transfers(const MachineRates& rates) const { return {*program_, config_, rates}; }

  // The keys that checks rely on: peak_bytes, by_role, u_bytes, ops, ...; with every buffer, too.
  OrderedJson json(WithBuffers buffers) const;
  std::string text() const;

 private:
  MemoryReport memory() const;
  int64_t u_bytes() const;

  RunConfig config_;
  ModelSpec spec_;
  std::unique_ptr<Program> program_;
  const Plan* largest_ = nullptr;
  std::vector<std::string> functions_;
  int64_t arena_bytes_[kArenaCount] = {};  // what a run allocates, as the largest function
};

}  // namespace octet
