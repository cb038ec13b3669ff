#include "train/run_setup.h"

#include <memory>

#include "base/error.h"
#include "infer/model_spec.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

constexpr int64_t kMostNarrowMicroBatches = 4;  // with more, gradients are summed in f32

[[noreturn]] void fail_choice(std::string_view key, std::string_view expected,
                              const std::string& got) {
  throw Error(ErrorCode::invalid_argument, "{}: expected {}, got {}", key, expected, got);
}

AdamwPolicy optimizer_policy(const OptimConfig& optim) {
  AdamwPolicy policy;
  policy.beta1 = optim.betas[0];
  policy.beta2 = optim.betas[1];
  policy.eps = optim.eps;
  policy.weight_decay = optim.weight_decay;
  policy.master = master_from_name(optim.master);
  policy.state_m = state_format_from_name(optim.state_m);
  policy.state_v = state_format_from_name(optim.state_v);
  policy.group = optim.group;
  policy.f32_below = optim.f32_below;
  policy.math = optim.math == "exact" ? PowerMath::exact : PowerMath::fast;
  return policy;
}

TokenWidth token_width(int64_t bytes) {
  switch (bytes) {
    case 0:
      return TokenWidth::infer;
    case 2:
      return TokenWidth::u16;
    case 4:
      return TokenWidth::u32;
    default:
      fail_choice("data.token_bytes", "0, 2 or 4", std::to_string(bytes));
  }
}

WindowOrder window_order(const DataConfig& data) {
  if (data.sampling == "shuffle") return WindowOrder::shuffled;
  if (data.sampling == "random") return WindowOrder::random;
  if (data.sampling == "sequential") return WindowOrder::sequential;
  return data.shuffle ? WindowOrder::shuffled : WindowOrder::sequential;
}

LinearOverride linear_override(const RecipeOverride& line) {
  LinearOverride result{.pattern = line.pattern};
  const std::string key = "recipe.override." + line.pattern;
  if (!line.recipe.empty()) {
    if (line.recipe != "bf16") fail_choice(key, "bf16 or formats by role", line.recipe);
    result.quantized = false;
  }
  for (const auto& [role, format] : line.formats) {
    const std::optional<Dtype> dtype = dtype_from_name(format);
    if (!dtype || !is_quantized(*dtype)) fail_choice(key, "e4m3, e5m2 or hif8 a tensor", format);
    (role == "x" ? result.x : role == "w" ? result.w : result.dy) = dtype;
  }
  return result;
}

RecipeOptions recipe_options(const RunConfig& config) {
  RecipeOptions options;
  if (config.train.accumulate > kMostNarrowMicroBatches) options.gradient = Dtype::f32;
  if (config.recipe.scaling != "auto")
    options.scaling = config.recipe.scaling == "delayed" ? Scaling::delayed : Scaling::current;
  options.tf32 = config.recipe.tf32;
  for (const WeightCopy copy :
       {WeightCopy::per_use, WeightCopy::scale, WeightCopy::per_step, WeightCopy::w_only}) {
    if (config.recipe.weight_copy == enum_name(copy)) options.weight_copy = copy;
  }
  for (const RecipeOverride& line : config.recipe.overrides) {
    options.overrides.push_back(linear_override(line));
  }
  return options;
}

std::optional<Recompute> recompute_choice(const std::string& name) {
  if (name == "auto") return std::nullopt;
  for (const Recompute choice : {Recompute::none, Recompute::cheap, Recompute::full}) {
    if (name == enum_name(choice)) return choice;
  }
  fail_choice("train.recompute", "none, cheap, auto or full", name);
}

}  // namespace

ProgramOptions program_options(const RunConfig& config, const ModelSpec& spec) {
  ProgramOptions options;
  options.forward = forward_builder(spec);
  options.recipe = config.recipe.base;
  options.recipe_options = recipe_options(config);
  options.recompute = recompute_choice(config.train.recompute);
  options.strict_fusion = config.recipe.strict_fusion;
  options.memory_budget = config.train.memory_budget;
  options.head_chunk_bytes = config.train.head_chunk;
  options.optim = optimizer_policy(config.optim);
  options.optim.seed = static_cast<uint32_t>(config.train.seed);
  // Accumulated gradients are all there when the update begins: nothing to release. A step that is
  // traced must be skipped as a whole, to run again from where it began.
  if (config.optim.clip == 0 && config.train.accumulate == 1 && !config.train.debug_nonfinite)
    options.optim.clipping = Clipping::none;
  options.train = {.batch = config.train.batch, .seq = config.model.seq};
  options.accumulate = static_cast<int>(config.train.accumulate);
  for (const ParameterSpec& parameter : model_parameters(spec)) {
    if (!parameter.decay) options.no_decay.push_back(parameter.name);
  }
  return options;
}

Schedule schedule_of(const RunConfig& config) {
  Schedule schedule;
  if (config.optim.schedule == "cosine") {
    schedule.kind = ScheduleKind::cosine;
  } else if (config.optim.schedule == "linear") {
    schedule.kind = ScheduleKind::linear;
  } else if (config.optim.schedule == "constant") {
    schedule.kind = ScheduleKind::constant;
  } else {
    fail_choice("optim.schedule", "cosine, linear or constant", config.optim.schedule);
  }
  schedule.lr = config.optim.lr;
  schedule.warmup = config.optim.warmup;
  schedule.steps = config.train.steps;
  schedule.final_lr = config.optim.final_lr;
  return schedule;
}

LoaderOptions loader_options(const RunConfig& config) {
  return {.seq = config.model.seq,
          .order = window_order(config.data),
          .boundaries = config.data.document_boundaries == "ignore"
                            ? DocumentBoundaries::ignore
                            : DocumentBoundaries::mask_labels,
          .seed = static_cast<uint64_t>(config.train.seed)};
}

int64_t eval_tokens(const RunConfig& config, const ModelSpec& spec) {
  const int64_t token_bytes = spec.vocab <= 256 ? 1 : spec.vocab <= 65536 ? 2 : 4;
  return config.train.eval_bytes / token_bytes;
}

Dataset open_run_data(const Files& files, const RunConfig& config, const ModelSpec& spec,
                      const Log& log) {
  if (config.data.train.empty()) {
    throw Error(ErrorCode::invalid_argument, "data.train: expected files or folders, got none");
  }
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(files, config.data.tokenizer);
  if (tokenizer->vocab_size() > spec.vocab) {
    throw Error(ErrorCode::invalid_argument,
                "model.vocab: expected at least the tokenizer's {}, got {}",
                tokenizer->vocab_size(), spec.vocab);
  }
  DatasetOptions options;
  options.train = config.data.train;
  options.val = config.data.val;
  options.val_fraction = config.data.val_fraction;
  options.document_separator = config.data.document_separator;
  options.shards.width = token_width(config.data.token_bytes);
  options.shards.vocab = spec.vocab;
  options.log = log;
  return open_dataset(files, options, *tokenizer);
}

}  // namespace octet
