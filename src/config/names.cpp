#include "config/names.h"

#include <algorithm>

#include "formats/table.h"
#include "nn/losses/loss.h"
#include "passes/precision/recipe.h"

namespace octet {

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe* recipe : all_recipes()) names.emplace_back(recipe->name);
  names.emplace_back(kScalify);
  return names;
}

std::vector<std::string> override_recipe_names() {
  std::vector<std::string> names;
  for (const Recipe* recipe : all_recipes()) {
    if (recipe->scales_loss && !recipe->unit_scales) names.emplace_back(recipe->name);
  }
  return names;
}

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const LossDef* loss : losses()) names.emplace_back(loss->name);
  return names;
}

std::vector<std::string> override_roles() {
  return {"x", "w", "dy", std::string(kSumsRole)};
}

std::vector<std::string> override_formats() {
  std::vector<std::string> names;
  for (const FormatRow& row : kFormats) {
    if (is_gemm_operand(row.dtype)) names.emplace_back(dtype_name(row.dtype));
  }
  return names;
}

std::vector<std::string> scaled_gradient_names() {
  return {"none", "fp16", "e5m2"};
}

std::vector<std::string> compute_names() {
  return {"f32", "bf16", "fp16"};
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names = override_formats();
  names.emplace_back("wide");
  return names;
}

std::vector<std::string> gradient_rounding_names() {
  return {"near", "rne", "hr", "sr"};
}

std::vector<std::string> boolean_names() {
  return {"true", "false"};
}

std::vector<std::string> activation_group_names() {
  return {"16", "32", "64", "128", "16x16", "32x32", "64x64", "128x128"};
}

std::vector<std::string> group_names() {
  return {"64", "128", "256"};
}

std::vector<std::string> token_byte_names() {
  return {"0", "2", "4"};
}

bool is_one_of(const std::vector<std::string>& names, std::string_view text) {
  return std::ranges::find(names, text) != names.end();
}

}  // namespace octet
