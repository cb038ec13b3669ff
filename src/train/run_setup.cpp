#include "train/run_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "base/cores.h"
#include "base/error.h"
#include "base/json.h"
#include "config/names.h"
#include "infer/class_names.h"
#include "infer/loaded_rms.h"
#include "infer/model_spec.h"
#include "infer/model_texts.h"
#include "infer/trained_scales.h"
#include "infer/weights.h"
#include "io/model_files.h"
#include "passes/precision/linear_groups.h"
#include "passes/precision/policy.h"
#include "passes/scalify/unit_scaling.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

constexpr int64_t kMaxNarrowMicroBatches = 4;  // with more, gradients are summed in f32

OptimPolicy optimizer_policy(const OptimConfig& optim) {
  OptimPolicy policy;
  policy.kind = optim.kind;
  for (const OptimRuleLine& line : optim.rules)
    policy.rules.push_back({line.match, line.kind, line.lr});
  policy.momentum = optim.momentum;
  policy.dampening = optim.dampening;
  policy.nesterov = optim.nesterov.value_or(policy.kind == UpdateKind::muon);
  policy.muon_scale = optim.muon_scale;
  policy.beta1 = optim.betas[0];
  policy.beta2 = optim.betas[1];
  policy.eps = optim.eps;
  policy.weight_decay = optim.weight_decay;
  policy.master = optim.master.value();
  policy.state_m = run_state_format_from_name(optim.state_m);
  policy.state_v = run_state_format_from_name(optim.state_v);
  policy.group = optim.group;
  policy.f32_below = optim.f32_below;
  policy.math = optim.math;
  return policy;
}

LossScalePolicy loss_scale_policy(const RecipeConfig& recipe) {
  LossScalePolicy policy{
      .kind = recipe.loss_scaling, .first = recipe.loss_scale, .growth_steps = recipe.loss_growth};
  if (policy.first == 0)
    policy.first =
        policy.kind == LossScaling::adaptive ? kFirstAdaptiveLossScale : kFirstGlobalLossScale;
  return policy;
}

// Negatives of a file are none until they are known (settle_negatives).
int64_t n_negatives(const TextFields& fields) {
  const bool is_word = fields.negatives.size() == 1 &&
                       (fields.negatives.front() == "auto" || fields.negatives.front() == "none");
  return is_word ? 0 : std::ssize(fields.negatives);
}

double log2_rms(const ParameterSpec& parameter) {
  if (parameter.init == Init::normal) return std::log2(parameter.std);
  return parameter.init == Init::ones ? 0 : -std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<ParameterSpec> first_parameters(const RunConfig& config, const ModelSpec& spec) {
  std::vector<ParameterSpec> parameters = model_parameters(spec);
  if (!find_recipe(config.recipe.base).unit_scales) return parameters;
  for (ParameterSpec& one : parameters)
    if (one.init == Init::normal) one.std = 1;
  return parameters;
}

RecipeOptions recipe_options(const RunConfig& config) {
  RecipeOptions options;
  if (config.train.accumulate > kMaxNarrowMicroBatches) options.gradient = Dtype::f32;
  options.scaling = config.recipe.scaling;
  options.weight_copy = config.recipe.weight_copy;
  options.tf32 = config.recipe.tf32;
  const RecipeConfig& recipe = config.recipe;
  const Dtype compute = recipe.compute.value();
  if (compute != find_recipe(recipe.base).compute) options.compute = compute;
  const Dtype stored = recipe.activations.value();
  if (stored != find_recipe(recipe.base).activations.value_or(Dtype::bf16))
    options.activations = stored;
  options.forward_reads = recipe.forward_reads;
  options.saved_attention = recipe.saved_attention;
  options.activation_group = recipe.activation_group;
  options.quantizes_linear_outputs = recipe.activation_scale == ActivationScale::tensor;
  options.rescale = recipe.rescale;
  options.scale_rounding = recipe.scale_rounding;
  for (const std::string& text : recipe.edge_scales)
    options.edge_scales.push_back(edge_scale_from_text(text).value());
  options.scaled_gradient = recipe.scaled_gradient;
  options.block_scale = recipe.block_scale;
  options.accumulation = recipe.accumulation;
  options.mx_rule = recipe.mx_scale == MxScale::floor ? ScaleRule::mx_floor : ScaleRule::power_ceil;
  options.gradient_rounding = recipe.gradient_rounding;
  options.overrides = linear_overrides(config.recipe);
  if (find_recipe(recipe.base).unit_scales) options.trained_seq = config.model.seq;
  return options;
}

FrozenFormat frozen_format(const RunConfig& config) {
  return config.lora.rank == 0 ? FrozenFormat::as_computed : config.lora.base;
}

ParallelOptions parallel_options(const RunConfig& config, int64_t rank) {
  return {.ranks = config.parallel.ranks,
          .rank = rank,
          .shard = config.parallel.shard,
          .gather = config.parallel.gather,
          .reduce = config.parallel.reduce.value(),
          .strict = config.parallel.strict};
}

std::vector<WeightedLoss> run_losses(const RunConfig& config, const ModelSpec& spec) {
  std::vector<WeightedLoss> losses = resolved_losses(spec, config.train.loss);
  for (WeightedLoss& one : losses)
    one.options = {.smoothing = config.train.label_smoothing,
                   .temperature = config.train.contrastive_temperature,
                   .beta = config.train.pairwise_beta,
                   .gamma = config.train.simpo_gamma,
                   .negatives = n_negatives(config.data.fields)};
  return losses;
}

namespace {

// Scales of a quantized head are made of all rows of its operands.
void check_divisible_head(const ProgramOptions& options, int64_t head_chunk) {
  const LinearFormats& base = find_recipe(options.recipe).linears;
  if (!quantizes_text_head(base, options.recipe_options.overrides)) return;
  throw Error(ErrorCode::invalid_argument,
              "train.head_chunk: expected 0 where recipe.override quantizes {}, got {}", kTextHead,
              head_chunk);
}

// Each parameter has a learning rate of its own. What decay takes of a weight in a step is
// weight_decay where the schedule is at its peak, whatever the learning rate is.
void scale_updates(ProgramOptions& options, double peak_lr) {
  options.optim.lr_factors = unit_learning_rates(options.forward(options.train, ForwardKind::loss));
  options.optim.weight_decay /= peak_lr;
}

}  // namespace

ProgramOptions program_options(const RunConfig& config, const ModelSpec& spec, int64_t rank) {
  ProgramOptions options;
  const std::vector<WeightedLoss> losses = run_losses(config, spec);
  options.forward = forward_builder(spec, losses);
  options.losses = loss_terms(spec, losses);
  options.recipe = config.recipe.base;
  options.recipe_options = recipe_options(config);
  options.recipe_options.frozen = frozen_format(config);
  options.loss_scale = loss_scale_policy(config.recipe);
  options.lora = lora_options(config, spec);
  options.loads_model = !config.model.path.empty();
  if (options.lora.rank == 0) options.freeze = config.train.freeze;
  options.parallel = parallel_options(config, rank);
  const bool sums_f32 = options.parallel.reduce == ReduceFormat::f32 || options.parallel.strict;
  if (options.parallel.is_active() && sums_f32) options.recipe_options.gradient = Dtype::f32;
  // Data of a whole weight would outlive its gathered copy.
  if (config.parallel.ranks > 1 && options.parallel.shard == ShardStage::parameters)
    options.recipe_options.weight_copy = WeightCopy::per_use;
  options.recompute = config.train.recompute;
  options.strict_fusion = config.recipe.strict_fusion;
  options.memory_budget = config.train.memory_budget;
  if (config.train.head_chunk > 0) check_divisible_head(options, config.train.head_chunk);
  options.head_chunk_bytes = config.train.head_chunk;
  options.optim = optimizer_policy(config.optim);
  options.optim.seed = static_cast<uint32_t>(config.train.seed);
  // Accumulated gradients are all there when the update begins: nothing to release. A step whose
  // loss scale was too large must be skipped as a whole.
  if (config.optim.clip == 0 && config.train.accumulate == 1 && !options.loss_scale)
    options.optim.clipping = Clipping::none;
  if (config.train.debug_nonfinite) options.optim.release = Release::at_end;
  options.train = {
      .batch = config.train.batch, .seq = config.model.seq, .documents = row_documents(config)};
  options.accumulate = static_cast<int>(config.train.accumulate);
  if (find_recipe(options.recipe).unit_scales) scale_updates(options, config.optim.lr);
  for (const ParameterSpec& parameter : first_parameters(config, spec)) {
    if (!parameter.decay) options.no_decay.push_back(parameter.name);
    options.recipe_options.initial_rms[parameter.name] = log2_rms(parameter);
  }
  return options;
}

Schedule schedule_of(const RunConfig& config) {
  return {.kind = config.optim.schedule,
          .lr = config.optim.lr,
          .warmup = config.optim.warmup,
          .steps = config.train.steps,
          .final_lr = config.optim.final_lr,
          .decay_share = config.optim.decay_share,
          .version = config.optim.schedule_version};
}

bool has_conversations(const RunConfig& config) {
  return config.data.chat.chat_template != "none";
}

bool has_whole_documents(const RunConfig& config) {
  return config.data.pack || has_conversations(config);
}

RowDocuments row_documents(const RunConfig& config) {
  return config.data.document_boundaries == DocumentBoundaries::isolate ? RowDocuments::isolated
                                                                        : RowDocuments::joined;
}

DocumentBoundaries eval_boundaries(RowDocuments documents) {
  return documents == RowDocuments::isolated ? DocumentBoundaries::isolate
                                             : DocumentBoundaries::ignore;
}

RowOptions row_options(const RunConfig& config) {
  // Ranks share the cores.
  constexpr int kMaxDecoders = 16;
  const int n_cores = usable_cores() / static_cast<int>(config.parallel.ranks);
  RowOptions options{.seq = config.model.seq,
                     .order = config.data.sampling.value(),
                     .boundaries = config.data.document_boundaries,
                     .seed = static_cast<uint64_t>(config.train.seed),
                     .step_rows = config.step_rows(),
                     .threads = std::clamp(n_cores, 1, kMaxDecoders)};
  if (!has_whole_documents(config)) return options;
  options.boundaries = eval_boundaries(row_documents(config));
  options.packing = config.data.pack ? Packing::first_fit : Packing::single;
  options.too_long = config.data.too_long;
  options.buckets = config.data.buckets;
  return options;
}

std::unique_ptr<EvalRows> make_eval_rows(const TokenStream& stream, const RunConfig& config,
                                         int64_t max_tokens, const std::vector<int64_t>& shorter) {
  RowOptions options = row_options(config);
  options.step_rows = config.train.batch * config.parallel.ranks;
  options.lengths = shorter;
  options.lengths.push_back(options.seq);
  return std::make_unique<SampleEval>(stream, options, max_tokens);
}

int64_t eval_tokens(const RunConfig& config, const ModelSpec& spec) {
  return config.train.eval_bytes / token_bytes(spec.vocab);
}

std::optional<TokenCacheOptions> token_cache_options(const RunConfig& config,
                                                     const std::string& tokenizer,
                                                     const std::string& separator,
                                                     const RunDataOptions& options) {
  if (!options.keeps_tokens || tokenizer.empty() || tokenizer == "bytes") return std::nullopt;
  std::string out = config.out;
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  return TokenCacheOptions{.folder = join_path(parent_path(out), "token-cache"),
                           .tokenizer_path = tokenizer,
                           .separator = separator,
                           .threads = options.threads,
                           .on_progress = options.on_progress,
                           .log = options.log};
}

std::unique_ptr<Tokenizer> data_tokenizer(const Files& files, const std::string& path,
                                          std::span<const std::string> data, int64_t vocab,
                                          const Log& log) {
  if (!are_token_shards(files, data)) return make_tokenizer(files, path);
  if (path.empty() || path == "bytes") return no_tokenizer(vocab);
  try {
    auto tokenizer = make_tokenizer(files, path);
    if (tokenizer->vocab_size() <= vocab) return tokenizer;
    log.warning("[data] {}: not used: {} tokens, the model has {}", path, tokenizer->vocab_size(),
                vocab);
  } catch (const Error& error) {
    log.warning("[data] no tokenizer knows where documents of shards end: {}", error.what());
  }
  return no_tokenizer(vocab);
}

ChatData read_run_chat(const Files& files, const RunConfig& config, const Tokenizer& tokenizer,
                       const std::vector<std::string>& paths, int threads) {
  const ChatConfig& chat = config.data.chat;
  ChatEncoder encoder(tokenizer, find_chat_templates(files, tokenizer, chat_query(config)),
                      config.data.text_end ? TextEnd::eos : TextEnd::none);
  encoder.refuse_split_tokens(
      split_tokens(files, {config.model.path, chat.chat_template}, tokenizer));
  return read_chat_data(files, encoder, {.paths = paths, .fields = chat, .threads = threads});
}

namespace {

bool has_weights(const Files& files, const std::string& folder) {
  return has_model_files(files, folder) ||
         files.exists(join_path(folder, "adapter_model.safetensors"));
}

}  // namespace

ProgramOptions loaded_options(const Files& files, const RunConfig& config, const ModelSpec& spec,
                              int64_t rank) {
  ProgramOptions options = program_options(config, spec, rank);
  const bool is_loaded =
      config.recipe.weight_rms == WeightRms::loaded && predicts_scales(config.recipe.base);
  if (!is_loaded || !has_weights(files, config.model.path)) return options;
  const WeightReader weights(files, config.model.path, spec,
                             nonfinite_weights(config.model.allow_nonfinite), head_weights(config));
  for (const auto& [name, rms] : loaded_rms(weights, spec))
    options.recipe_options.initial_rms[name] = rms;
  return options;
}

std::vector<std::string> names_of_model(const Files& files, const RunConfig& config,
                                        const ModelSpec& spec) {
  if (config.model.path.empty()) return {};
  const std::string path = join_path(config.model.path, "config.json");
  return class_names(parse_json(files.read_text(path), path), spec.classes);
}

}  // namespace octet
