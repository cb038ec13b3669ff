#include "passes/precision/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "formats/codec.h"

namespace octet {

// The last * takes as little as it can, and more only where what follows does not fit: an earlier
// one never has to take more.
bool matches_pattern(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, behind_star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      behind_star = ++p;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (behind_star != std::string_view::npos) {
      p = behind_star;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

OperandFormat operand_format(Dtype dtype, bool gradient) {
  const FormatRow row = find_format(dtype);
  const float target = gradient ? row.gradient_amax_target : row.amax_target;
  return {.dtype = dtype, .target = static_cast<double>(target)};
}

LinearFormats resolve(const LinearFormats& base, const std::vector<LinearOverride>& overrides,
                      std::string_view name) {
  LinearFormats formats = base;
  for (const LinearOverride& o : overrides) {
    if (!matches_pattern(o.pattern, name)) continue;
    if (o.quantized) formats.quantized = *o.quantized;
    if (o.x) formats.x = operand_format(*o.x, false);
    if (o.w) formats.w = operand_format(*o.w, false);
    if (o.dy) formats.dy = operand_format(*o.dy, true);
  }
  return formats;
}

int quantizer_centre(Dtype dtype) {
  return dtype == Dtype::e4m3 ? 1 : 0;
}

std::string linear_name(const Node& node) {
  return node.tag.layer < 0 ? "" : fmt::format("layers.{}.{}", node.tag.layer, node.tag.origin);
}

void check_overrides(std::string_view recipe, const LinearFormats& formats, const Graph& graph,
                     const std::vector<LinearOverride>& overrides) {
  if (!overrides.empty() && !formats.quantized)
    throw Error(ErrorCode::invalid_argument,
                "recipe.override: expected a recipe that quantizes linears, got {}", recipe);
  std::set<std::string> names;
  for (const Node& node : graph.nodes) {
    if (node.op == OpCode::gemm && node.tag.layer >= 0) names.insert(linear_name(node));
  }
  for (const LinearOverride& o : overrides) {
    const auto is_meant = [&](const std::string& name) { return matches_pattern(o.pattern, name); };
    if (std::any_of(names.begin(), names.end(), is_meant)) continue;
    std::string known;
    for (auto it = names.begin(); it != names.end() && it->rfind("layers.0.", 0) == 0; ++it)
      known += (known.empty() ? "" : ", ") + *it;
    throw Error(
        ErrorCode::invalid_argument,
        "recipe.override.{}: expected a pattern that matches a linear, such as {}; got none",
        o.pattern, known);
  }
}

}  // namespace octet
