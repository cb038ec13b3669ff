#include "train/unused_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <variant>

#include "config/report.h"
#include "config/table.h"
#include "data/dataset.h"
#include "data/row_source.h"
#include "data/shards.h"
#include "nn/fields.h"
#include "nn/model.h"
#include "nn/other_kinds.h"
#include "optim/state_format.h"
#include "passes/precision/recipe.h"
#include "train/data_entries.h"
#include "train/finetune.h"
#include "train/row_data.h"
#include "train/run_inputs.h"
#include "train/run_setup.h"
#include "train/text_rows.h"

namespace octet {
namespace {

// Facts that decide whether a key changes anything.
struct Facts {
  const RunConfig& config;
  const Recipe& recipe;
  std::vector<std::string> losses = {};
  bool reads_text = false, has_arrays = false, has_labels = false;  // labels: of texts (TextFields)
  bool translates = false, sees_pictures = false, has_validation = true;
  std::vector<OperandFormat> formats = {}, gradients = {};  // that linears may have
  std::vector<UpdateKind> rules = {};

  bool loss(std::string_view name) const { return std::ranges::find(losses, name) != losses.end(); }
  bool rule(UpdateKind kind) const { return std::ranges::find(rules, kind) != rules.end(); }
  bool has_moments() const { return rule(UpdateKind::adamw) || rule(UpdateKind::lamb); }
  bool has_momentum() const {
    return config.optim.momentum > 0 && (rule(UpdateKind::sgd) || rule(UpdateKind::muon));
  }
  bool any_state(bool (*is_so)(const StateFormat&)) const {
    return (has_moments() || has_momentum()) &&
           (is_so(run_state_format_from_name(config.optim.state_m)) ||
            (has_moments() && is_so(run_state_format_from_name(config.optim.state_v))));
  }
  bool any_format(bool (*is_so)(const OperandFormat&)) const {
    return std::ranges::any_of(formats, is_so);
  }
};

void add_formats(const LinearFormats& linears, Facts& facts) {
  if (!linears.quantized) return;
  for (const OperandFormat* format : {&linears.x, &linears.w, &linears.dy}) {
    if (format->quantized) facts.formats.push_back(*format);
  }
  if (linears.dy.quantized) facts.gradients.push_back(linears.dy);
}

// Whether a file of text is among those that are read, one that is no shard of tokens.
bool reads_plain_text(const RunConfig& config) {
  const auto is_text = [&](const std::string& path) {
    return !is_shard_name(path) &&
           !(has_conversations(config) && holds_conversations(posix_files(), path));
  };
  return config.data.train.empty() || std::ranges::any_of(config.data.train, is_text) ||
         std::ranges::any_of(config.data.val, is_text);
}

// Sources and targets, where a model that translates is not given text with spans left out.
bool reads_pairs(const Facts& f) {
  return f.translates && !f.has_arrays && f.config.data.spans.share == 0;
}

Facts facts_of(const RunConfig& config, const ModelSpec& spec) {
  Facts facts{.config = config, .recipe = find_recipe(config.recipe.base)};
  for (const WeightedLoss& one : run_losses(config, spec)) facts.losses.push_back(one.name);
  facts.reads_text = model_def(spec.kind).reads_text;
  facts.has_arrays = are_arrays(config.data.train);
  facts.has_labels =
      facts.reads_text && !facts.has_arrays && text_label_of(RunInputs(config, spec)).has_value();
  facts.translates = model_def(spec.kind).translates;
  facts.sees_pictures = model_def(spec.kind).sees_pictures;
  facts.has_labels = facts.has_labels || reads_pairs(facts);
  add_formats(facts.recipe.linears, facts);
  for (const LinearOverride& line : recipe_options(config).overrides)
    add_formats(apply_overrides({.quantized = false}, {line}), facts);
  facts.rules = {config.optim.kind};
  if (config.optim.kind == UpdateKind::muon) facts.rules.push_back(UpdateKind::adamw);
  for (const OptimRuleLine& line : config.optim.rules) facts.rules.push_back(line.kind);
  return facts;
}

bool saves_codes(const Facts& f) {
  return is_quantized(f.config.recipe.activations.value());
}
bool is_tensor(const OperandFormat& format) {
  return !format.is_block();
}
bool is_f32_block(const OperandFormat& format) {
  return format.is_block() && format.granularity.scale == Dtype::f32;
}
bool is_e8m0_block(const OperandFormat& format) {
  return format.granularity.scale == Dtype::e8m0;
}
bool is_coded(const StateFormat& format) {
  return is_quantized(format.dtype);
}
bool is_expanded(const StateFormat& format) {
  return format.expand;
}
bool is_narrow(const StateFormat& format) {
  return format.dtype != Dtype::f32;
}

bool trains_adapters(const Facts& f) {
  return f.config.lora.rank > 0;
}

bool has_ranks(const Facts& f) {
  return f.config.parallel.ranks > 1;
}

bool evaluates(const Facts& f) {
  return f.has_validation;
}

bool samples(const Facts& f) {
  return !f.config.train.sample_prompts.empty();
}

// A path that ends with '.' stands for all keys below it.
struct Need {
  std::string_view path, needs;
  bool (*is_met)(const Facts& f);
};
constexpr std::string_view kValidation = "validation data (data.val, data.val_fraction)";
constexpr Need kNeeds[] = {
    {"model.tied", "a model that reads text", [](const Facts& f) { return f.reads_text; }},
    {"model.seq", "a model that reads text", [](const Facts& f) { return f.reads_text; }},
    {"model.allow_nonfinite", "model.path",
     [](const Facts& f) { return !f.config.model.path.empty(); }},
    {"recipe.scaling", "a recipe or override with scales of tensors",
     [](const Facts& f) { return !f.recipe.scales_loss || f.any_format(is_tensor); }},
    {"recipe.weight_copy", "a recipe or override that quantizes with scales of tensors",
     [](const Facts& f) { return !f.recipe.scales_loss || f.any_format(is_tensor); }},
    {"recipe.forward_reads", "recipe.activations in eight bits", saves_codes},
    {"recipe.saved_attention", "recipe.activations in eight bits", saves_codes},
    {"recipe.activation_group", "recipe.activations in eight bits", saves_codes},
    {"recipe.gradient_rounding", "gradients with one scale a tensor, for rne and hr in HiFloat8",
     [](const Facts& f) {
       const Rounding rounding = f.config.recipe.gradient_rounding;
       return std::ranges::any_of(f.gradients, [&](const OperandFormat& format) {
         return is_tensor(format) && (rounding == Rounding::sr || format.dtype == Dtype::hif8);
       });
     }},
    {"recipe.block_scale", "operands with scales of rows or blocks in f32",
     [](const Facts& f) { return f.any_format(is_f32_block); }},
    {"recipe.mx_scale", "operands in mxfp8",
     [](const Facts& f) { return f.any_format(is_e8m0_block); }},
    {"recipe.weight_rms", "a recipe with propagated scales",
     [](const Facts& f) { return !f.recipe.scales_loss; }},
    {"recipe.recheck", "a recipe with scales",
     [](const Facts& f) { return !f.recipe.scales_loss || !f.formats.empty(); }},
    {"recipe.loss_scale", "recipe.loss_scaling",
     [](const Facts& f) { return f.config.recipe.loss_scaling != LossScaling::none; }},
    {"recipe.loss_growth", "recipe.loss_scaling: global",
     [](const Facts& f) { return f.config.recipe.loss_scaling == LossScaling::global; }},
    {"recipe.tf32", "recipe fp32",
     [](const Facts& f) { return f.config.recipe.compute == Dtype::f32; }},
    {"optim.momentum", "a rule sgd or muon",
     [](const Facts& f) { return f.rule(UpdateKind::sgd) || f.rule(UpdateKind::muon); }},
    {"optim.dampening", "a rule sgd with optim.momentum",
     [](const Facts& f) { return f.rule(UpdateKind::sgd) && f.has_momentum(); }},
    {"optim.nesterov", "a rule sgd or muon with optim.momentum",
     [](const Facts& f) { return f.has_momentum(); }},
    {"optim.muon_scale", "a rule muon", [](const Facts& f) { return f.rule(UpdateKind::muon); }},
    {"optim.betas", "a rule adamw or lamb", [](const Facts& f) { return f.has_moments(); }},
    {"optim.eps", "a rule adamw or lamb", [](const Facts& f) { return f.has_moments(); }},
    {"optim.final_lr", "optim.schedule that falls",
     [](const Facts& f) {
       const ScheduleKind kind = f.config.optim.schedule;
       return kind != ScheduleKind::constant && kind != ScheduleKind::inverse_sqrt;
     }},
    {"optim.decay_share", "optim.schedule: wsd",
     [](const Facts& f) { return f.config.optim.schedule == ScheduleKind::wsd; }},
    {"optim.state_m", "a rule with a moment or optim.momentum",
     [](const Facts& f) { return f.has_moments() || f.has_momentum(); }},
    {"optim.state_v", "a rule adamw or lamb", [](const Facts& f) { return f.has_moments(); }},
    {"optim.master", "weights of 16 bits: those of recipe.compute fp32 are their own masters",
     [](const Facts& f) { return f.config.recipe.compute != Dtype::f32; }},
    {"optim.group", "states in eight bits", [](const Facts& f) { return f.any_state(is_coded); }},
    {"optim.math", "states with range expansion",
     [](const Facts& f) { return f.any_state(is_expanded); }},
    {"optim.f32_below", "states that are not f32",
     [](const Facts& f) { return f.any_state(is_narrow); }},
    {"data.tokenizer", "a model that reads text", [](const Facts& f) { return f.reads_text; }},
    {"data.token_bytes", "shards of tokens",
     [](const Facts& f) {
       const auto are_shards = [](const std::vector<std::string>& paths) {
         return !paths.empty() && are_token_shards(posix_files(), paths);
       };
       return are_shards(f.config.data.train) || are_shards(f.config.data.val);
     }},
    {"data.document_boundaries", "a model that reads text",
     [](const Facts& f) { return f.reads_text; }},
    {"data.chat.", "data.chat.template",
     [](const Facts& f) { return has_conversations(f.config); }},
    {"data.document_separator", "text that is neither conversations nor labeled",
     [](const Facts& f) {
       return f.reads_text && !f.has_arrays && !f.has_labels && reads_plain_text(f.config);
     }},
    {"data.too_long", "data.pack, data.chat.template or pairs of a model that translates",
     [](const Facts& f) {
       return f.config.data.pack || has_conversations(f.config) || reads_pairs(f);
     }},
    {"data.spans.share", "text of a model that translates",
     [](const Facts& f) { return f.translates && !f.has_arrays; }},
    {"data.spans.length", "data.spans.share of a model that translates",
     [](const Facts& f) { return f.translates && f.config.data.spans.share > 0; }},
    {"data.targets", "pairs of a model that translates", reads_pairs},
    {"data.val_targets", "data.val of a model that translates pairs",
     [](const Facts& f) { return reads_pairs(f) && !f.config.data.val.empty(); }},
    {"data.source_prefix", "pairs of a model that translates", reads_pairs},
    {"model.source_seq", "a model that translates", [](const Facts& f) { return f.translates; }},
    {"data.text_end", "data.chat.template",
     [](const Facts& f) { return has_conversations(f.config); }},
    {"data.stride", "the loss span, of questions",
     [](const Facts& f) { return f.loss("span") && !f.has_arrays; }},
    {"data.fields.negatives", "the loss contrastive",
     [](const Facts& f) { return f.loss("contrastive") && !f.has_arrays; }},
    {"data.fields.partners", "the loss contrastive",
     [](const Facts& f) { return f.loss("contrastive") && !f.has_arrays; }},
    {"data.fields.label", "texts with labels",
     [](const Facts& f) { return f.has_labels && !f.translates; }},
    {"data.fields.", "texts with labels", [](const Facts& f) { return f.has_labels; }},
    {"data.mask.share", "the loss masked_token, of text",
     [](const Facts& f) { return f.loss("masked_token") && !f.has_arrays; }},
    {"data.images.pad", "data.images.crop: random",
     [](const Facts& f) { return f.config.data.images.crop == ImageCrop::random; }},
    {"data.images.scale", "data.images.crop: random_resized",
     [](const Facts& f) { return f.config.data.images.crop == ImageCrop::random_resized; }},
    {"data.images.ratio", "data.images.crop: random_resized",
     [](const Facts& f) { return f.config.data.images.crop == ImageCrop::random_resized; }},
    {"data.images.", "pictures",
     [](const Facts& f) { return (!f.reads_text || f.sees_pictures) && !f.has_arrays; }},
    {"model.images", "a model that sees pictures", [](const Facts& f) { return f.sees_pictures; }},
    {"train.head_chunk", "a model that reads text", [](const Facts& f) { return f.reads_text; }},
    {"train.eval_every", "validation data (data.val, data.val_fraction) or train.sample_prompts",
     [](const Facts& f) { return f.config.train.eval_every == 0 || evaluates(f) || samples(f); }},
    {"train.eval_bytes", kValidation, evaluates},
    {"train.eval_rows", kValidation, evaluates},
    {"train.keep_best", kValidation, evaluates},
    {"train.patience", kValidation, evaluates},
    {"lora.alpha", "lora.rank", trains_adapters},
    {"lora.dropout", "lora.rank", trains_adapters},
    {"lora.targets", "lora.rank", trains_adapters},
    {"lora.kind", "lora.rank", trains_adapters},
    {"lora.ranks", "lora.rank", trains_adapters},
    {"lora.save", "lora.rank", trains_adapters},
    {"lora.base", "lora.rank", trains_adapters},
    {"train.label_smoothing", "a loss of classes or tokens, dpo or simpo",
     [](const Facts& f) {
       return f.loss("classes") || f.loss("next_token") || f.loss("masked_token") ||
              f.loss("dpo") || f.loss("simpo");
     }},
    {"train.contrastive_temperature", "the loss contrastive",
     [](const Facts& f) { return f.loss("contrastive"); }},
    {"train.pairwise_beta", "the losses dpo, ipo, simpo, orpo and pairwise",
     [](const Facts& f) {
       return f.loss("pairwise") || f.loss("dpo") || f.loss("ipo") || f.loss("simpo") ||
              f.loss("orpo");
     }},
    {"train.simpo_gamma", "the loss simpo", [](const Facts& f) { return f.loss("simpo"); }},
    {"train.sample_every", "train.sample_prompts", samples},
    {"train.sample_tokens", "train.sample_prompts", samples},
    {"train.sample_temperature", "train.sample_prompts", samples},
    {"train.spike_window", "train.spike_deviations",
     [](const Facts& f) { return f.config.train.spike_deviations > 0; }},
    {"train.save_buffer", "train.async_save",
     [](const Facts& f) { return f.config.train.async_save; }},
    {"train.on_audit", "train.audit", [](const Facts& f) { return f.config.train.audit > 0; }},
    {"parallel.shard", "parallel.ranks", has_ranks},
    {"parallel.gather", "parallel.ranks", has_ranks},
    {"parallel.reduce", "parallel.ranks", has_ranks},
    {"parallel.transport", "parallel.ranks", has_ranks},
    {"parallel.strict", "parallel.ranks", has_ranks},
    {"parallel.reduce", "parallel.strict: false, with which gradients travel as f32",
     [](const Facts& f) {
       return !f.config.parallel.strict || f.config.parallel.reduce == ReduceFormat::f32;
     }},
};

// The need that `path` lacks; "" where it lacks nothing.
std::string lacks(const ConfigRow& row, const Facts& facts, const ModelSpec& spec) {
  const auto* field = std::get_if<const ModelField*>(&row.field);
  if (field != nullptr && !(*field)->is_of(spec)) return "a model that has it";
  for (const Need& need : kNeeds) {
    const bool is_meant =
        need.path.ends_with('.') ? row.path.starts_with(need.path) : row.path == need.path;
    if (is_meant && !need.is_met(facts)) return std::string(need.needs);
  }
  return "";
}

}  // namespace

std::vector<UnusedKey> unused_keys(const LoadedConfig& loaded, const ModelSpec& spec,
                                   HasValidation validation) {
  RunConfig defaults;
  defaults.recipe.base = loaded.config.recipe.base;
  defaults.model.path = loaded.config.model.path;
  resolve(defaults);
  // As a run's own config.yaml has them, once they are settled.
  if (loaded.config.data.fields.negatives.empty()) defaults.data.fields.negatives.clear();
  if (loaded.config.parallel.strict) defaults.parallel.reduce = ReduceFormat::f32;
  const ConfigValues values = config_values(loaded.config), by_default = config_values(defaults);
  Facts facts = facts_of(loaded.config, spec);
  facts.has_validation = validation == HasValidation::yes;
  std::vector<UnusedKey> unused;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [key, value] = values[i];
    if (!is_written(loaded.source, key) || value == by_default[i].second) continue;
    if (loaded.source.find(key)->second.starts_with(kFinetuneSource)) continue;  // no user's
    const ConfigRow& row = *find_config_row(key);
    const auto* field = std::get_if<const ModelField*>(&row.field);
    if (field != nullptr && is_default(**field, loaded.config.model)) continue;
    if (std::string needs = lacks(row, facts, spec); !needs.empty())
      unused.push_back({row.path, value, std::move(needs)});
  }
  return unused;
}

namespace {

void tell_expansions(const LoadedConfig& loaded, const Log& log) {
  const OptimConfig& optim = loaded.config.optim;
  for (const auto& [key, state] :
       {std::pair("optim.state_m", &optim.state_m), std::pair("optim.state_v", &optim.state_v)}) {
    if (is_written(loaded.source, key) && !expands_as_named(*state))
      log.warning("{}: {} = {}: +x has no effect without a format in eight bits",
                  loaded.source.at(key), key, *state);
  }
}

}  // namespace

void tell_unused(const LoadedConfig& loaded, const ModelSpec& spec, const Dataset& data,
                 const Log& log) {
  const auto validation = has_validation(data) ? HasValidation::yes : HasValidation::no;
  for (const UnusedKey& key : unused_keys(loaded, spec, validation)) {
    log.warning("{}: {} = {} has no effect without {}", loaded.source.at(std::string(key.path)),
                key.path, key.value, key.needs);
  }
  tell_expansions(loaded, log);
  const RunConfig& config = loaded.config;
  if (config.data.train.size() == 1 && !config.data.train_weights.empty())
    log.warning("data.train: the weight of the only file has no effect");
  const std::vector<StreamPart>& parts = data.train.parts();
  std::vector<double> read;  // tokens an epoch, of each part
  int64_t begin = 0;
  for (const StreamPart& part : parts) {
    read.push_back(part.weight * static_cast<double>(part.end - begin));
    begin = part.end;
  }
  const double all = std::accumulate(read.begin(), read.end(), 0.0);
  const auto rows = static_cast<double>(config.train.steps * config.step_rows());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (read[i] / all * rows >= 1) continue;
    const std::string name = parts.size() == config.data.train.size() ? config.data.train[i] : "";
    log.warning("data.train: next to nothing of '{}' is read in {} steps: its weight is {:g}", name,
                config.train.steps, parts[i].weight);
  }
}

void tell_unused_on(const Device& device, const TrainEngine& engine, const RunConfig& config,
                    const Log& log) {
  const auto tell = [&](std::string_view key, std::string_view why) {
    log.info("{} changes nothing here: {}", key, why);
  };
  const bool has_sums = engine.has_row("tensor sums");
  if (config.recipe.accumulation && !has_sums && !engine.has_row("fp8 "))
    tell("recipe.accumulation", "no GEMM is an FP8 one of tensor cores");
  if (config.train.arithmetic == Arithmetic::hopper && !has_sums)
    tell("train.arithmetic", "no GEMM of a CPU has a rule of Hopper's");
  if (!device.info().name.starts_with("cpu")) return;
  if (config.recipe.tf32) tell("recipe.tf32", "GEMMs of a CPU do not round to TF32");
  if (config.parallel.ranks > 1 && config.parallel.transport != RankTransport::automatic)
    tell("parallel.transport", "ranks on a CPU are threads of one process");
}

}  // namespace octet
