#include "passes/precision/recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/nearest.h"
#include "ir/linear_use.h"
#include "ir/op_def.h"
#include "passes/lower/fold.h"
#include "passes/precision/f32_values.h"
#include "passes/precision/linear_groups.h"
#include "passes/precision/list.h"
#include "passes/precision/quantize_linears.h"
#include "passes/precision/store_groups.h"
#include "passes/precision/store_pictures.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

constexpr std::array kRecipes = {&kFp32Recipe,       &kBf16Recipe,        &kFp16Recipe,
                                 &kFp8LinearRecipe,  &kCoatRecipe,        &kCoatFastRecipe,
                                 &kHif8Recipe,       &kScalifyFp32Recipe, &kScalifyFp16Recipe,
                                 &kScalifyFp8Recipe, &kCoatStaticRecipe,  &kFp8BlockRecipe,
                                 &kMxfp8Recipe,      &kFp8LmRecipe,       &kCoatBlockRecipe,
                                 &kFp8RowRecipe,     &kUnitScalingRecipe};

}  // namespace

std::span<const Recipe* const> all_recipes() {
  return kRecipes;
}

const Recipe& find_recipe(std::string_view name) {
  if (name == kScalify) name = kScalifyFp16Recipe.name;
  const auto it = std::find_if(kRecipes.begin(), kRecipes.end(),
                               [&](const Recipe* r) { return r->name == name; });
  if (it != kRecipes.end()) return **it;
  std::vector<std::string> known;
  known.reserve(kRecipes.size());
  for (const Recipe* recipe : kRecipes) known.emplace_back(recipe->name);
  throw Error(ErrorCode::invalid_argument, "[recipe] expected one of {}, got '{}'{}",
              fmt::join(known, ", "), name, nearest_hint("; the nearest is ", name, known));
}

Recipe chosen_recipe(std::string_view name, const RecipeOptions& options) {
  Recipe recipe = find_recipe(name);
  if (options.compute) recipe.compute = *options.compute;
  if (!options.activations) return recipe;
  const bool is_stored = is_quantized(*options.activations);
  recipe.activations = is_stored ? options.activations : std::nullopt;
  recipe.recompute = is_stored ? Recompute::cheap : Recompute::none;
  return recipe;
}

std::string resolved_table(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  std::string text;
  for (const Node& node : graph.nodes) {
    const bool is_depthwise = depthwise_role(node) == GemmRole::forward;
    if (linear_role(node) != GemmRole::forward && !is_depthwise) continue;
    if (linear_of_use(node.tag.origin) != node.tag.origin) continue;  // its first use has a line
    const auto formats = formats_of(graph, node, recipe.linears, options.overrides);
    if (!formats) continue;
    LinearFormats f = *formats;
    if (is_depthwise) f.quantized = f.quantized && recipe.scales_loss;
    const std::string label = node.tag.layer >= 0 ? linear_name(node) : outer_linear(graph, node);
    const auto name = [&](const OperandFormat& format) {
      return f.quantized && format.quantized ? operand_format_name(format)
                                             : std::string(dtype_name(recipe.compute));
    };
    text += fmt::format("{:32} x {:5} w {:5} dy {}", label, name(f.x), name(f.w), name(f.dy));
    if (f.quantized && f.backward_x) text += fmt::format(", wgrad x {}", name(*f.backward_x));
    if (f.quantized && f.backward_w) text += fmt::format(", dgrad w {}", name(*f.backward_w));
    text += '\n';
  }
  return text;
}

Graph assign_types(const Graph& graph, Dtype compute, Dtype gradient) {
  CHECK(graph.phase == Phase::logical);
  Graph typed = graph;
  typed.phase = Phase::typed;
  std::set<ValueId> gradients;
  for (const GraphOutput& output : graph.outputs) {
    if (is_gradient_name(output.name)) gradients.insert(output.value);
  }
  const ById<bool> is_f32 = f32_values(graph);
  for (size_t v = 0; v < typed.values.size(); ++v) {
    Value& value = typed.values[v];
    if (value.type.dtype != Dtype::real) continue;
    if (value.type.shape.empty()) {
      value.type.dtype = Dtype::f32;
    } else if (gradients.contains(static_cast<ValueId>(v))) {
      value.type.dtype = gradient;
    } else {
      value.type.dtype = is_f32[v] ? Dtype::f32 : compute;
    }
  }
  return typed;
}

Graph cast_behind_moves(const Graph& typed) {
  const auto changes_dtype = [&](const Node& node) {
    if (!op_def(node.op).moves && node.op != OpCode::pad) return false;
    const Dtype from = typed.type(node.in(Unary::x)).dtype;
    return is_float(from) && from != typed.type(node.out(Unary::y)).dtype;
  };
  if (std::ranges::none_of(typed.nodes, changes_dtype)) return typed;
  Rewriter rewriter(typed);
  Builder& b = rewriter.builder();
  for (const Node& node : typed.nodes) {
    if (!changes_dtype(node)) {
      rewriter.copy(node);
      continue;
    }
    b.tag = node.tag;
    const ValueId y = node.out(Unary::y);
    const ValueId moved = b.emit1(node.op, node.attrs, rewriter.map(node.operands));
    rewriter.set(y, b.cast(moved, typed.type(y).dtype));
  }
  return rewriter.finish();
}

Graph widen_quantizer_inputs(const Graph& graph) {
  const Matcher m(graph);
  Graph result = graph;
  for (const Node& node : graph.nodes) {
    const ValueId y = node.out(Unary::y);  // the first result of all of them
    if (!is_norm_or_activation(node.op) || m.is_graph_output(y)) continue;
    const auto readers = m.readers(y);
    const bool only_quantizers =
        !readers.empty() && std::ranges::all_of(readers, [](const Node* reader) {
          return reader->op == OpCode::amax || op_def(reader->op).is_quantizer;
        });
    if (only_quantizers) result.value(y).type.dtype = Dtype::f32;
  }
  return result;
}

Graph quantize_by_recipe(const Recipe& recipe, const Graph& typed, const RecipeOptions& options,
                         const std::map<std::string, LinearRms>& predicted) {
  const Scaling scaling = options.scaling.value_or(recipe.scaling);
  // Powers of two have states of their own.
  const WeightCopy weights = has_power_scales(scaling)
                                 ? WeightCopy::per_use
                                 : options.weight_copy.value_or(recipe.weight_copy);
  // The transposed x of wgrad is made in the backward pass where codes are repeated there.
  const bool keeps_x = options.recompute.value_or(recipe.recompute) != Recompute::cheap;
  const QuantizeLinearsOptions linears{
      .formats = recipe.linears,
      .overrides = options.overrides,
      .block_scale = options.block_scale,
      .scales = {.scaling = scaling,
                 .predicted = predicted,
                 .detects_overflow = options.detects_overflow},
      .kept = {.weights = weights, .x = keeps_x},
      .quantizers = {.k_major = options.k_major,
                     .gradient_rounding = options.gradient_rounding,
                     .mx_rule = options.mx_rule},
      .fast_accumulate = recipe.fast_accumulate,
      .accumulation = options.accumulation};
  return widen_quantizer_inputs(quantize_linears(typed, linears));
}

Graph apply_types(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  return options.overrides.empty() ? typed_graph(recipe, graph, options)
                                   : apply_quantized_linears(recipe, graph, options);
}

Graph typed_graph(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  // Gradients are no wider than what is computed in, unless they are f32.
  const bool is_half = recipe.compute == Dtype::fp16 && options.gradient == Dtype::bf16;
  const Dtype gradient = is_half ? Dtype::fp16 : options.gradient;
  return store_frozen(cast_behind_moves(assign_types(graph, recipe.compute, gradient)),
                      options.frozen);
}

Graph apply_quantized_linears(const Recipe& recipe, const Graph& graph,
                              const RecipeOptions& options) {
  const Graph typed = typed_graph(recipe, graph, options);
  if (!recipe.activations) return quantize_by_recipe(recipe, typed, options);
  const OperandFormat format = operand_format(*recipe.activations, false);
  const StoreGroupsOptions groups{.dtype = format.dtype,
                                  .target = format.target,
                                  .group = options.activation_group,
                                  .forward_reads = options.forward_reads,
                                  .attention = options.saved_attention};
  // Activations that are written in primitives are known by what reads them.
  if (stores_pictures(typed))
    return store_pictures(quantize_by_recipe(recipe, typed, options), groups);
  return quantize_by_recipe(recipe, store_groups(typed, groups), options);
}

}  // namespace octet
