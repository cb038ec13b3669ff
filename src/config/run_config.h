// The typed configuration of a run. Every default stands here; every name, limit and help text
// stands in the table (config/table.h), from which the parser, --set, --help and
// docs/configuration.md are made.
//
// Nothing ("auto") and 0 mark values that depend on others; resolve() replaces them, but for what
// the compiler settles (recipe.weight_copy, train.recompute) and optim.nesterov. What chooses is an
// enum; names of a registry (recipes, state formats) and paths are text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/choices.h"
#include "config/data_config.h"
#include "nn/losses/loss.h"
#include "nn/spec.h"
#include "passes/lora.h"
#include "passes/precision/policy.h"

namespace octet {

// The shape of a new model, or the folder of one.
struct ModelConfig : ModelSpec {
  std::string path;  // empty: a new model of the shape
  int64_t seq = 256;
  bool allow_nonfinite = false;
  bool operator==(const ModelConfig&) const = default;
};

// One line of recipe.override: nodes whose name matches the pattern take another recipe, or other
// formats by role. Later lines win.
struct RecipeOverride {
  std::string pattern;  // * matches any run of characters
  std::string recipe;   // empty when formats are given
  // Role (x, w, dy) -> format[/granularity]; sums -> fast or promoted.
  std::vector<std::pair<std::string, std::string>> formats;
  bool operator==(const RecipeOverride&) const = default;
};

struct RecipeConfig {
  std::string base = "bf16";
  std::optional<Scaling> scaling;
  std::optional<WeightCopy> weight_copy;
  std::optional<Dtype> compute;
  std::optional<Dtype> activations;  // bf16: "wide", as they are
  Rounding gradient_rounding = Rounding::near;
  ActivationScale activation_scale = ActivationScale::group;
  ForwardReads forward_reads = ForwardReads::unquantized;
  SavedAttention saved_attention = SavedAttention::wide;
  Granularity activation_group = kGroupsOf16;
  BlockScale block_scale = BlockScale::max;
  std::optional<Accumulation> accumulation;
  MxScale mx_scale = MxScale::ceil;
  DynamicRescale rescale = DynamicRescale::none;
  ScaleRounding scale_rounding = ScaleRounding::predicted;
  std::optional<Dtype> scaled_gradient;  // nothing: "none"
  std::vector<std::string> edge_scales;  // "layers.3.down_proj.x=-2"
  std::string calibrate = "auto";        // "before" the first step, or after this one
  int64_t recheck = 0;                   // steps
  std::optional<WeightRms> weight_rms;
  LossScaling loss_scaling = LossScaling::none;
  double loss_scale = 0;       // 0: by loss_scaling
  int64_t loss_growth = 2000;  // steps
  bool strict_fusion = false;
  bool tf32 = false;
  std::vector<RecipeOverride> overrides;  // in the order written
  bool operator==(const RecipeConfig&) const = default;
};

// One line of optim.rules: parameters whose names match take this rule, at a share of the learning
// rate. Later lines win.
struct OptimRuleLine {
  std::string match;
  UpdateKind kind = UpdateKind::adamw;
  double lr = 1;
  bool operator==(const OptimRuleLine&) const = default;
};

struct OptimConfig {
  UpdateKind kind = UpdateKind::adamw;
  std::vector<OptimRuleLine> rules;
  double momentum = 0.9, dampening = 0;
  std::optional<bool> nesterov;
  MuonScale muon_scale = MuonScale::match_adamw;
  double lr = 1e-3;
  ScheduleKind schedule = ScheduleKind::cosine;
  int64_t warmup = 50;
  double warmup_share = 0;  // of the steps; 0: warmup says
  double final_lr = 0.1;
  double decay_share = 0.2;
  int64_t schedule_version = 2;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;
  std::string state_m = "auto", state_v = "auto";  // of optim/state_format.h
  int64_t group = 128;
  int64_t f32_below = 0;  // elements
  std::optional<Master> master;
  PowerMath math = PowerMath::fast;
  bool operator==(const OptimConfig&) const = default;
};

// Low-rank adapters (passes/lora.h).
struct LoraConfig : LoraOptions {
  std::string adapter;                            // a folder of PEFT's to go on with; "": none
  std::vector<std::string> save;                  // patterns of modules that are trained whole
  FrozenFormat base = FrozenFormat::as_computed;  // "auto"
  bool operator==(const LoraConfig&) const = default;
};

// Sharded data parallelism (passes/parallel/options.h).
struct ParallelConfig {
  int64_t ranks = 1;
  ShardStage shard = ShardStage::gradients;
  GatherFormat gather = GatherFormat::codes;
  std::optional<ReduceFormat> reduce;
  bool strict = false;
  RankTransport transport = RankTransport::automatic;
  bool operator==(const ParallelConfig&) const = default;
};

struct TrainConfig {
  int64_t steps = 1000;
  double epochs = 0;  // 0: steps says
  int64_t batch = 8, accumulate = 1;
  int64_t seed = 1;
  std::vector<WeightedLoss> loss;  // empty: the model's own; its options are the fields below
  double label_smoothing = 0, contrastive_temperature = 0.05, pairwise_beta = 0.1,
         simpo_gamma = 0.5;
  std::vector<std::string> freeze;  // patterns of parameters
  int64_t eval_every = 100, eval_bytes = 131072, eval_rows = 0;
  std::vector<std::string> sample_prompts;
  int64_t sample_every = 0;  // steps; 0: as eval_every
  int64_t sample_tokens = 64;
  double sample_temperature = 0;
  int64_t log_every = 1, save_every = 200, keep = 2;
  bool keep_best = false, async_save = true;
  int64_t save_buffer = int64_t{512} << 20;  // bytes
  int64_t patience = 0;                      // evaluations; 0: no early stop
  ExportAs export_as = ExportAs::none;
  bool deterministic = false;
  Arithmetic arithmetic = Arithmetic::own;
  std::optional<Recompute> recompute;
  int64_t head_chunk = 0;     // bytes; 0: whole
  int64_t memory_budget = 0;  // bytes; 0: no limit
  bool debug_nonfinite = false;
  int64_t max_nonfinite_steps = 10;
  int64_t max_zero_gradients = 3;  // 0: any number
  int64_t telemetry_every = 50, telemetry = 0;
  int64_t audit = 0;  // steps; 0: none
  OnAudit on_audit = OnAudit::warn;
  double spike_deviations = 6.0;
  int64_t spike_window = 100;
  bool tensorboard = true;
  bool operator==(const TrainConfig&) const = default;
};

struct RunConfig {
  ModelConfig model;
  RecipeConfig recipe;
  OptimConfig optim;
  DataConfig data;
  LoraConfig lora;
  ParallelConfig parallel;
  TrainConfig train;
  std::string out = "runs/latest";
  // Rows of a step, of all ranks together.
  int64_t step_rows() const { return train.batch * train.accumulate * parallel.ranks; }
  bool operator==(const RunConfig&) const = default;
};

// The step that recipe.calibrate names: 0 of "before"; nothing where it is neither that nor a
// number of steps.
std::optional<int64_t> calibration_step(const std::string& calibrate);

}  // namespace octet
