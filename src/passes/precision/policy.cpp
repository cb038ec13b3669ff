#include "passes/precision/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/parse_text.h"
#include "formats/codec.h"
#include "formats/quantize.h"
#include "ir/linear_use.h"
#include "passes/precision/linear_groups.h"
#include "passes/precision/recipe.h"

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

OperandFormat block_format(Dtype dtype, std::string_view granularity, Dtype scales) {
  OperandFormat format = operand_format(dtype, false);
  format.granularity = granularity_from_name(granularity);
  format.granularity.scale = scales;
  return format;
}

std::optional<OperandFormat> operand_format_from_name(std::string_view name, bool gradient) {
  if (name == kNotQuantized) return OperandFormat{.quantized = false};
  const size_t slash = name.find('/');
  const auto dtype = dtype_from_name(name.substr(0, slash));
  if (!dtype || !is_gemm_operand(*dtype)) return std::nullopt;
  OperandFormat format = operand_format(*dtype, gradient);
  if (slash == name.npos) return format;
  try {
    format.granularity = granularity_from_name(name.substr(slash + 1));
    return format;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string operand_format_name(const OperandFormat& format) {
  if (!format.quantized) return std::string(kNotQuantized);
  const std::string name(dtype_name(format.dtype));
  return format.is_block() ? name + "/" + granularity_name(format.granularity) : name;
}

LinearFormats apply_overrides(const LinearFormats& base,
                              const std::vector<LinearOverride>& overrides,
                              BlockScale block_scale) {
  LinearFormats formats = base;
  constexpr OperandFormat kNone = {.quantized = false};
  for (const LinearOverride& o : overrides) {
    if (o.formats) formats = *o.formats;
    if ((o.x || o.w || o.dy) && !formats.quantized) formats = {.x = kNone, .w = kNone, .dy = kNone};
    if (o.x) formats.x = *o.x, formats.backward_x.reset();
    if (o.w) formats.w = *o.w, formats.backward_w.reset();
    if (o.dy) formats.dy = *o.dy;
  }
  const auto set_scales = [&](OperandFormat& format) {
    Dtype& scale = format.granularity.scale;
    if (format.is_block() && scale == Dtype::f32 && block_scale == BlockScale::power)
      scale = Dtype::bf16;
  };
  for (OperandFormat* format : {&formats.x, &formats.w, &formats.dy}) set_scales(*format);
  if (formats.backward_x) set_scales(*formats.backward_x);
  if (formats.backward_w) set_scales(*formats.backward_w);
  return formats;
}

bool accumulates_fast(FastAccumulate recipe, std::optional<Accumulation> chosen, GemmRole role,
                      int64_t k) {
  const bool is_forward = role == GemmRole::forward;
  if (chosen)
    return *chosen == Accumulation::fast || (*chosen == Accumulation::forward && is_forward);
  const bool may = is_forward || (role == GemmRole::dgrad && recipe == FastAccumulate::all);
  return may && k <= kLongestFastSum;
}

int quantizer_centre(Dtype dtype) {
  return dtype == Dtype::e4m3 ? 1 : 0;
}

int predicted_scale(double rms, Dtype dtype) {
  const double log2 = std::isfinite(rms) ? rms : 0;
  return static_cast<int>(std::ceil(log2 - 0.5)) - quantizer_centre(dtype);
}

// Positive f32 are ordered like their bits.
float largest_unsaturated(Dtype dtype) {
  const FormatRow row = find_format(dtype);
  const float most = max_finite(dtype);
  uint32_t fits = bits_of(most), overflows = bits_of(2 * most);
  while (overflows - fits > 1) {
    const uint32_t middle = fits + (overflows - fits) / 2;
    const uint32_t code = encode(dtype, float_of(middle), Rounding::near, {.saturate = false});
    (code == row.max_code ? fits : overflows) = middle;
  }
  return float_of(fits);
}

std::optional<EdgeScale> edge_scale_from_text(std::string_view text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  EdgeScale scale{.pattern = std::string(text.substr(0, equals))};
  const auto log2 = parse_number<int>(text.substr(equals + 1));
  if (!log2 || std::abs(*log2) > kMaxEdgeScale) return std::nullopt;
  scale.log2 = *log2;
  return scale;
}

int edge_scale(const std::vector<EdgeScale>& scales, std::string_view edge) {
  int log2 = 0;
  for (const EdgeScale& scale : scales)
    if (matches_pattern(scale.pattern, edge)) log2 = scale.log2;
  return log2;
}

std::string linear_name(const Node& node) {
  if (node.tag.layer < 0) return "";
  return layer_name(node.tag).append(".").append(linear_of_use(node.tag.origin));
}

void check_overrides(std::string_view recipe, const LinearFormats& formats, const Graph& graph,
                     const std::vector<LinearOverride>& overrides) {
  const bool quantizes =
      formats.quantized || std::ranges::any_of(overrides, [](const LinearOverride& o) {
        return o.formats && o.formats->quantized;
      });
  if (!overrides.empty() && !quantizes)
    throw Error(ErrorCode::invalid_argument,
                "recipe.override: expected a recipe that quantizes linears, got {}", recipe);
  std::set<std::string> names, first_layer, outer;
  const bool has_depthwise = find_recipe(recipe).scales_loss;  // predicted scales are of GEMMs
  for (const Node& node : graph.nodes) {
    const bool is_named =
        is_layer_gemm(node) || (has_depthwise && depthwise_role(node) != GemmRole::other);
    if (is_named) names.insert(linear_name(node));
    if (is_named && node.tag.layer == 0) first_layer.insert(linear_name(node));
    if (const std::string module = outer_linear(graph, node); !module.empty()) outer.insert(module);
  }
  for (const LinearOverride& o : overrides) {
    const auto is_meant = [&](const std::string& name) { return matches_pattern(o.pattern, name); };
    if (std::any_of(names.begin(), names.end(), is_meant)) continue;
    if (std::ranges::any_of(
            outer, [&](const auto& module) { return names_outer_linear(o.pattern, module); }))
      continue;
    const std::string by_name =
        outer.empty() ? "" : fmt::format(", or by its name {}", fmt::join(outer, ", "));
    throw Error(
        ErrorCode::invalid_argument,
        "recipe.override.{}: expected a pattern that matches a linear, such as {}{}; got none",
        o.pattern, fmt::join(first_layer, ", "), by_name);
  }
}

}  // namespace octet
