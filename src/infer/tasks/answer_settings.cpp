#include "infer/tasks/answer_settings.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "infer/loaded_rms.h"

namespace octet {
namespace {

std::string format_text(const std::optional<OperandFormat>& format) {
  return format ? operand_format_name(*format) : "";
}

std::string formats_text(const std::optional<LinearFormats>& formats) {
  if (!formats) return "";
  if (!formats->quantized) return "16";
  return fmt::format("8 {} {} {} {} {}", format_text(formats->x), format_text(formats->w),
                     format_text(formats->dy), format_text(formats->backward_x),
                     format_text(formats->backward_w));
}

std::string dtype_text(const std::optional<Dtype>& dtype) {
  return dtype ? std::string(dtype_name(*dtype)) : "";
}

// Each field that a forward pass sees; of the same options the same text.
std::string options_text(const ModelSource& source) {
  const RecipeOptions& options = source.recipe_options;
  std::string text =
      fmt::format("{};{};{};{};{};{};{};{};{}\n",
                  options.scaling ? enum_name(*options.scaling) : "", dtype_text(options.compute),
                  dtype_text(options.activations), enum_name(options.forward_reads),
                  options.quantizes_linear_outputs, options.tf32, enum_name(options.block_scale),
                  static_cast<int>(options.mx_rule), static_cast<int>(source.stored));
  for (const LinearOverride& line : options.overrides) {
    text += fmt::format("{}={};{};{};{}\n", line.pattern, formats_text(line.formats),
                        format_text(line.x), format_text(line.w), format_text(line.dy));
  }
  if (!predicts_scales(source.recipe)) return text;
  for (const EdgeScale& scale : options.edge_scales)
    text += fmt::format("{}={}\n", scale.pattern, scale.log2);
  for (const auto& [name, rms] : options.initial_rms) text += fmt::format("{}={:a}\n", name, rms);
  return text;
}

uint64_t hash_of(const std::string& text) {
  Xxh64 hash;
  hash.update(text);
  return hash.digest();
}

// Whether a text's scales depend on those beside it.
bool measures_scales(const ModelSource& source) {
  if (predicts_scales(source.recipe)) return false;
  return measures_batches(find_recipe(source.recipe)) || !source.recipe_options.overrides.empty();
}

}  // namespace

std::string answer_settings(const ModelSource& source, const AnswerLimits& limits) {
  std::string text = fmt::format("longest {}, new {}, tokenizer {:016x}", limits.longest,
                                 limits.n_new, limits.tokenizer);
  if (measures_scales(source)) text += fmt::format(", batch {}", limits.batch);
  const std::string options = options_text(source);
  ModelSource plain;
  plain.recipe = source.recipe;
  if (options != options_text(plain)) text += fmt::format(", options {:016x}", hash_of(options));
  return text;
}

}  // namespace octet
