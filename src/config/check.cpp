#include "config/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/error.h"
#include "base/parse_text.h"
#include "config/table.h"
#include "config/value.h"
#include "data/row_source.h"
#include "nn/other_kinds.h"
#include "nn/shape.h"
#include "optim/beta_error.h"
#include "optim/optimizer.h"
#include "passes/loss_scale.h"
#include "passes/precision/recipe.h"

namespace octet {
namespace {

std::optional<std::string> first_wrong_rank(const RunConfig& config) {
  for (const std::string& text : config.lora.ranks) {
    if (!lora_rank_from_text(text)) return text;
  }
  return std::nullopt;
}

constexpr int64_t kMaxTokens = int64_t{1} << 31;  // matrix libraries divide by zero beyond

// A key's value, as a user writes it.
std::string text_of(const RunConfig& config, std::string_view path) {
  return value_text(*find_config_row(path), config);
}

// A relation between two keys. The message stands at the one that somebody wrote.
struct Relation {
  std::string_view path, other;
  bool holds;
  std::string expected, got;
};

void check(const LoadedConfig& loaded, const std::string& name,
           std::initializer_list<Relation> relations) {
  for (const Relation& relation : relations) {
    if (relation.holds) continue;
    const auto written = is_written(loaded.source, relation.path) ? relation.path : relation.other;
    const std::string where =
        is_written(loaded.source, written) ? loaded.source.at(std::string(written)) : name;
    fail_expected({where, std::string(relation.path)}, relation.expected, relation.got);
  }
}

void check_shape(const LoadedConfig& loaded, const std::string& name) {
  auto fault = fault_of(loaded.config.model);
  if (!fault) fault = fault_of_other_kinds(loaded.config.model);
  if (!fault) return;
  const std::string path = fmt::format("model.{}", fault->field);
  const std::string other = fault->other.empty() ? path : fmt::format("model.{}", fault->other);
  check(loaded, name, {{path, other, false, fault->expected_of(other), fault->got}});
}

// Keys that only propagated scales have.
void check_scales(const LoadedConfig& loaded, const std::string& name, const Recipe& recipe) {
  const RecipeConfig& config = loaded.config.recipe;
  const auto text = [&](std::string_view path) { return text_of(loaded.config, path); };
  const bool carries = !recipe.scales_loss && config.compute != Dtype::bf16;
  const bool is_scaled = config.rescale != DynamicRescale::none || config.scaled_gradient;
  const bool rounds_predictions = config.scale_rounding == ScaleRounding::predicted;
  const auto calibrate = calibration_step(config.calibrate);
  const bool is_calibrated =
      !config.edge_scales.empty() || config.calibrate == "before" || calibrate.value_or(0) > 0;
  check(
      loaded, name,
      {{"recipe.rescale", "recipe.base", carries || !is_scaled,
        "none, and recipe.scaled_gradient none, unless values carry scales (scalify_fp16, "
        "scalify_fp32, scalify_fp8 with recipe.compute fp16)",
        fmt::format("{}, {}", text("recipe.rescale"), text("recipe.scaled_gradient"))},
       {"recipe.scale_rounding", "recipe.base", carries || rounds_predictions,
        "predicted, unless values carry scales (scalify_fp16, scalify_fp32, scalify_fp8 with "
        "recipe.compute fp16)",
        text("recipe.scale_rounding")},
       {"recipe.edge_scales", "recipe.base", !recipe.scales_loss || !is_calibrated,
        "none, and recipe.calibrate 0, but with propagated scales (scalify_fp8, coat-static, "
        "scalify_fp16, scalify_fp32)",
        fmt::format("[{}], {}", fmt::join(config.edge_scales, ", "), config.calibrate)},
       {"recipe.calibrate", "recipe.calibrate", config.calibrate == "auto" || calibrate.has_value(),
        "auto, before, or a step from 0 to 2147483647", config.calibrate},
       {"recipe.edge_scales", "recipe.edge_scales",
        std::ranges::all_of(
            config.edge_scales,
            [](const std::string& text) { return edge_scale_from_text(text).has_value(); }),
        "operands with powers from -64 to 64, such as layers.0.down_proj.x=-2",
        fmt::format("[{}]", fmt::join(config.edge_scales, ", "))}});
}

// True if a line quantizes an operand with more scales than one.
bool has_blocks(const RecipeOverride& line) {
  const auto is_block = [](const OperandFormat& format) {
    return format.quantized && format.is_block();
  };
  if (!line.recipe.empty()) {
    const LinearFormats& linears = find_recipe(line.recipe).linears;
    return is_block(linears.x) || is_block(linears.w) || is_block(linears.dy);
  }
  return std::ranges::any_of(line.formats, [&](const auto& one) {
    const auto format = operand_format_from_name(one.second, one.first == "dy");
    return format && is_block(*format);
  });
}

// A model with unit variances is one of the run's own, and AdamW's.
void check_unit_scaling(const LoadedConfig& loaded, const std::string& name, const Recipe& recipe) {
  if (!recipe.unit_scales) return;
  const RunConfig& config = loaded.config;
  const auto text = [&](std::string_view path) { return text_of(config, path); };
  const bool has_adamw = std::ranges::all_of(
      config.optim.rules, [](const OptimRuleLine& line) { return line.kind == UpdateKind::adamw; });
  const std::string with = fmt::format("with recipe {}", recipe.name);
  check(
      loaded, name,
      {{"model.path", "recipe.base", config.model.path.empty(),
        fmt::format("none {}: a model's folder has other variances", with), config.model.path},
       {"model.tied", "recipe.base", !config.model.tied, "false " + with, "true"},
       {"optim.kind", "recipe.base", config.optim.kind == UpdateKind::adamw, "adamw " + with,
        text("optim.kind")},
       {"optim.rules", "recipe.base", has_adamw, fmt::format("kind adamw {}", with), "another"},
       {"recipe.override", "recipe.base", std::ranges::none_of(config.recipe.overrides, has_blocks),
        fmt::format("formats with one scale a tensor {}, whose factors join it", with),
        "scales of rows or blocks"},
       {"train.export", "recipe.base", config.train.export_as == ExportAs::none,
        fmt::format("none {}, whose factors no model folder has a key for", with),
        text("train.export")}});
}

// Values that a recipe may be given, and keys that go together.
void check_recipe(const LoadedConfig& loaded, const std::string& name, const Recipe& recipe) {
  const RecipeConfig& config = loaded.config.recipe;
  const auto text = [&](std::string_view path) { return text_of(loaded.config, path); };
  const bool is_free = recipe.linears.quantized && (recipe.scales_loss || !recipe.activations);
  const bool may_choose = is_free && config.compute != Dtype::f32;
  const bool may_compute = may_choose || (recipe.unit_scales && config.compute != Dtype::f32);
  const std::string_view activations =
      recipe.activations ? dtype_name(*recipe.activations) : std::string_view("wide");
  const bool keeps_quantized =
      config.weight_copy == WeightCopy::per_step || config.weight_copy == WeightCopy::w_only;
  const bool has_powers = config.scaling == Scaling::periodic || config.scaling == Scaling::none;
  int exponent = 0;
  const double significand = std::frexp(config.loss_scale, &exponent);
  check(loaded, name,
        {{"recipe.compute", "recipe.base", config.compute == recipe.compute || may_compute,
          fmt::format("{} with recipe {}",
                      is_free || recipe.unit_scales ? "bf16 or fp16" : dtype_name(recipe.compute),
                      recipe.name),
          text("recipe.compute")},
         {"recipe.activations", "recipe.base",
          config.activations == recipe.activations.value_or(Dtype::bf16) || may_choose,
          fmt::format("{} with recipe {}", activations, recipe.name), text("recipe.activations")},
         {"recipe.activation_scale", "recipe.base",
          config.activation_scale == ActivationScale::group ||
              (!recipe.scales_loss && recipe.activations),
          fmt::format("group with recipe {}: only coat-static predicts it", recipe.name),
          text("recipe.activation_scale")},
         {"recipe.weight_copy", "recipe.scaling", !keeps_quantized || !has_powers,
          fmt::format("auto, per_use or scale with recipe.scaling = {}", text("recipe.scaling")),
          text("recipe.weight_copy")},
         {"recipe.loss_scaling", "recipe.base",
          config.loss_scaling == LossScaling::none || recipe.scales_loss,
          fmt::format("none with recipe {}, whose scales are propagated", recipe.name),
          text("recipe.loss_scaling")},
         {"recipe.loss_scale", "recipe.loss_scale",
          config.loss_scale == 0 || (significand == 0.5 && config.loss_scale >= kMinLossScale),
          fmt::format("a power of two from {} to {}", kMinLossScale, kMaxLossScale),
          fmt::format("{}", config.loss_scale)}});
}

}  // namespace

std::optional<int64_t> calibration_step(const std::string& calibrate) {
  if (calibrate == "before") return 0;
  const auto step = parse_number<int32_t>(calibrate);
  return step && *step >= 0 ? std::optional<int64_t>(step) : std::nullopt;
}

void check_adapters(const LoadedConfig& loaded, const std::string& name) {
  const RunConfig& config = loaded.config;
  const LoraConfig& lora = config.lora;
  const std::optional<std::string> wrong = first_wrong_rank(config);
  check(loaded, name,
        {{"lora.rank", "model.path", lora.rank == 0 || !config.model.path.empty(),
          "a model that adapters are trained beside, model.path", "none"},
         {"train.export", "lora.rank",
          config.train.export_as != ExportAs::adapter || lora.rank > 0 || !lora.adapter.empty(),
          "a model, as there are no adapters", text_of(config, "train.export")},
         {"train.freeze", "lora.adapter", config.train.freeze.empty() || lora.adapter.empty(),
          "no patterns with lora.adapter, whose folder says what is trained",
          fmt::format("[{}]", fmt::join(config.train.freeze, ", "))},
         {"lora.adapter", "model.path", lora.adapter.empty() || !config.model.path.empty(),
          "a model that it belongs to, model.path", "none"},
         {"lora.dropout", "lora.kind", lora.dropout == 0 || lora.kind != LoraKind::dora,
          "0 with lora.kind dora", fmt::format("{:g}", lora.dropout)},
         {"lora.ranks", "lora.ranks", !wrong, "PATTERN=RANK or PATTERN=RANK:ALPHA",
          wrong.value_or("")},
         {"lora.targets", "lora.rank", lora.rank == 0 || !lora.targets.empty(),
          "patterns of linears", "none"}});
}

void check_written(const LoadedConfig& loaded, const std::string& name) {
  const RunConfig& config = loaded.config;
  for (const ConfigRow& row : config_rows()) {
    const bool is_shape = is_shape_key(row.path);
    check(loaded, name,
          {{row.path, "model.path",
            !is_shape || config.model.path.empty() || !is_written(loaded.source, row.path) ||
                is_of_new_head(row.path, config),
            row.path == "model.classes" ? "model.head: classes or multi_label beside model.path"
                                        : "no shape key beside model.path",
            value_text(row, config)}});
  }
  if (config.model.path.empty()) check_shape(loaded, name);
  const std::optional<WindowOrder> order = config.data.sampling;
  const std::string sampling = text_of(config, "data.sampling");
  const bool sampling_agrees = !order || !is_written(loaded.source, "data.shuffle") ||
                               config.data.shuffle == (order != WindowOrder::sequential);
  check(loaded, name,
        {{"data.sampling", "data.shuffle", sampling_agrees,
          fmt::format("agreement with data.shuffle = {}", config.data.shuffle), sampling},
         {"data.sampling", "data.chat.template",
          order != WindowOrder::random || config.data.chat.chat_template == "none",
          "shuffle or sequential for conversations", sampling},
         {"data.sampling", "data.train",
          order != WindowOrder::random || config.data.train_weights.empty(),
          "shuffle or sequential with weights in data.train", sampling},
         {"data.sampling", "data.pack", order != WindowOrder::random || !config.data.pack,
          "shuffle or sequential with data.pack", sampling},
         {"data.document_boundaries", "data.pack",
          !config.data.pack || config.data.document_boundaries == DocumentBoundaries::isolate ||
              !is_written(loaded.source, "data.document_boundaries"),
          "isolate with data.pack", text_of(config, "data.document_boundaries")},
         {"data.buckets", "data.pack", config.data.buckets == 1 || !config.data.pack,
          "1 with data.pack", fmt::to_string(config.data.buckets)},
         {"data.sampling", "data.buckets", order != WindowOrder::random || config.data.buckets == 1,
          "shuffle or sequential with data.buckets", sampling},
         {"data.chat.template", "data.chat.template", !config.data.chat.chat_template.empty(),
          "a template, auto or none", "nothing"},
         {"data.tokenizer", "data.tokenizer", !config.data.tokenizer.empty(), "`bytes` or a file",
          "nothing"},
         {"out", "out", !config.out.empty(), "a folder", "nothing"}});
  check_adapters(loaded, name);
}

void check_resolved(const LoadedConfig& loaded, const std::string& name) {
  const RunConfig& config = loaded.config;
  const Recipe& recipe = find_recipe(config.recipe.base);
  check_recipe(loaded, name, recipe);
  check_scales(loaded, name, recipe);
  check_unit_scaling(loaded, name, recipe);
  const Dtype compute = config.recipe.compute.value();
  const Master master = config.optim.master.value();
  const std::string_view compute_name = dtype_name(compute), master_name = enum_name(master);
  bool quantizes = recipe.linears.quantized;
  for (const RecipeOverride& line : config.recipe.overrides) {
    if (line.recipe.empty()) continue;
    const Recipe& other = find_recipe(line.recipe);
    quantizes = quantizes || other.linears.quantized;
    const bool fits = other.linears.quantized ? compute != Dtype::f32 && recipe.scales_loss
                                              : other.compute == compute;
    check(loaded, name,
          {{"recipe.override", "recipe.base", fits,
            fmt::format("a recipe that computes in {} as {} does", compute_name, recipe.name),
            line.recipe}});
  }
  check(loaded, name,
        {{"optim.warmup", "train.steps",
          config.optim.warmup <= config.train.steps || config.train.epochs > 0,
          fmt::format("at most train.steps = {}", config.train.steps),
          fmt::to_string(config.optim.warmup)},
         {"train.batch", "model.seq", config.train.batch <= kMaxTokens / config.model.seq,
          fmt::format("at most {} tokens in a micro-batch (batch x seq)", kMaxTokens),
          fmt::format("{} x {}", config.train.batch, config.model.seq)},
         {"optim.betas", "optim.betas", std::ranges::max(config.optim.betas) < kBetaLimit,
          "two numbers below 1 in f32", fmt::format("[{}]", fmt::join(config.optim.betas, ", "))},
         {"optim.master", "recipe.base", compute != Dtype::fp16 || master != Master::bf16_remainder,
          "fp32, bf16_sr or fp16_sr for FP16 weights", std::string(master_name)},
         {"optim.master", "recipe.compute", compute == Dtype::fp16 || master != Master::fp16_sr,
          fmt::format("auto or another for {} weights (fp16_sr is of fp16 ones)", compute_name),
          std::string(master_name)},
         {"optim.master", "recipe.compute", compute == Dtype::bf16 || master != Master::fp16_scaled,
          fmt::format("auto or another for {} weights (fp16_scaled is of bf16 ones)", compute_name),
          std::string(master_name)},
         {"optim.dampening", "optim.nesterov",
          config.optim.nesterov != true || config.optim.dampening == 0, "0 with optim.nesterov",
          fmt::to_string(config.optim.dampening)},
         {"parallel.reduce", "parallel.strict",
          !config.parallel.strict || config.parallel.reduce != ReduceFormat::e4m3,
          "f32 or bf16 with parallel.strict", text_of(config, "parallel.reduce")},
         {"recipe.override", "recipe.base", config.recipe.overrides.empty() || quantizes,
          "a recipe that quantizes linears", config.recipe.base},
         {"model.vocab", "data.tokenizer",
          !config.model.path.empty() || config.data.tokenizer != "bytes" ||
              config.model.vocab >= 256 || are_arrays(config.data.train),
          ">= 256 for the byte tokenizer", fmt::to_string(config.model.vocab)}});
}

}  // namespace octet
