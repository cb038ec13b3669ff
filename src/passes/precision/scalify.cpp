// scalify_fp16: fp16 whose values carry power-of-two scales that are known before the step
// (passes/scalify): no loss scaling. Gradients are handed out in f32, as values.
// scalify_fp32: fp32 with the same scales: its bits, by which the rules are tested.
// scalify_fp8, coat-static: fp8_linear and coat with the scales that the same rules predict in the
// place of measured ones; values are BF16, whose range needs no scales, and quantizers' scales are
// constants, so that no maximum is taken anywhere in the step. scalify_fp8 may compute in FP16:
// then values carry scales, as in scalify_fp16. Source: Balanca et al. 2024 (Scalify);
// docs/scalify.md.
#include "passes/scalify/scalify.h"
#include <cmath>
#include "passes/scalify/fold.h"
#include "passes/simplify.h"

#include "passes/precision/list.h"
#include "passes/precision/quantize_linears.h"
#include "passes/precision/store_groups.h"

namespace octet {

std::map<std::string, double> initial_rms(const Graph& graph, const RecipeOptions& options) {
  constexpr double kUsual = 0.02;
  std::map<std::string, double> rms = options.initial_rms;
  for (const GraphInput& input : graph.inputs) {
    const bool is_matrix = graph.type(input.value).shape.size() > 1;
    const bool is_weight = input.kind == InputKind::parameter || input.kind == InputKind::constant;
    if (is_weight && is_matrix) rms.try_emplace(input.name, std::log2(kUsual));
  }
  return rms;
}

namespace {

ScalifyOptions carrying(const Graph& graph, const RecipeOptions& options) {
  ScalifyOptions result{.input_rms = initial_rms(graph, options),
                        .gradients = options.scaled_gradient};
  if (options.rescale != DynamicRescale::none) result.norm_gradients = RescaleNorm::l2;
  result.rescales_gradients = options.rescale == DynamicRescale::norms_and_gradients;
  if (result.rescales_gradients && !result.gradients) result.gradients = Dtype::f32;
  return result;
}

Graph typed_scales(const Recipe& recipe, const Scalified& scaled) {
  return assign_types(simplify(fold_rescales(scaled.graph)), recipe.compute, Dtype::f32);
}

Graph apply_scales(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  return typed_scales(recipe, scalify(graph, carrying(graph, options)));
}

// What the rules predict for the data of each linear's operands.
std::map<std::string, LinearRms> predictions(const Scalified& predicted) {
  std::map<std::string, LinearRms> linears;
  std::map<std::string, ValueId> inputs;  // x, by linear
  for (const Node& node : predicted.graph.nodes) {
    const std::string name = node.op == OpCode::gemm ? linear_name(node) : "";
    if (name.empty()) continue;
    const auto rms = [&](SlotId slot) {
      return predicted.data_rms[static_cast<size_t>(node.in(slot))];
    };
    LinearRms& linear = linears[name];
    const GemmRole role = std::get<GemmAttrs>(node.attrs).role;
    if (role == GemmRole::forward) {
      linear.x = rms(Gemm::a), linear.w = rms(Gemm::b);
      inputs[name] = node.in(Gemm::a);
    } else if (role == GemmRole::wgrad) {  // of x and dy
      linear.dy = rms(node.in(Gemm::a) == inputs[name] ? Gemm::b : Gemm::a);
    }
  }
  return linears;
}

Scalified uncarried(const Graph& graph, const RecipeOptions& options) {
  return scalify(graph, {.carries = false, .input_rms = initial_rms(graph, options)});
}

// FP16 has not BF16's range: its values carry scales, as those of scalify_fp16.
Graph apply_fp8(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  if (recipe.compute == Dtype::fp16) {
    const Scalified scaled = scalify(graph, carrying(graph, options));
    return quantize_by_recipe(recipe, typed_scales(recipe, scaled), options, predictions(scaled));
  }
  return quantize_by_recipe(recipe, typed_graph(recipe, graph, options), options,
                            predictions(uncarried(graph, options)));
}

Graph apply_coat(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  return quantize_by_recipe(recipe, store_groups(typed_graph(recipe, graph, options)), options,
                            predictions(uncarried(graph, options)));
}

}  // namespace

const Recipe kScalifyFp32Recipe = {
    .name = "scalify_fp32",
    .help = "fp32 whose values carry propagated scales: the same bits",
    .compute = Dtype::f32,
    .linears = {.quantized = false, .x = {}, .w = {}, .dy = {}},
    .recompute = Recompute::none,
    .state = "f32",
    .scales_loss = false,
    .apply = apply_scales};

const Recipe kScalifyFp16Recipe = {
    .name = "scalify_fp16",
    .help = "FP16 with scales propagated through the step (Scalify): no loss scaling",
    .compute = Dtype::fp16,
    .linears = {.quantized = false, .x = {}, .w = {}, .dy = {}},
    .recompute = Recompute::none,
    .state = "f32",
    .scales_loss = false,
    .apply = apply_scales};

const Recipe kScalifyFp8Recipe = {
    .name = "scalify_fp8",
    .help = "fp8_linear with propagated scales: no maximum is taken in the step",
    .compute = Dtype::bf16,
    .linears = {.quantized = true,
                .x = operand_format(Dtype::e4m3, false),
                .w = operand_format(Dtype::e4m3, false),
                .dy = operand_format(Dtype::e5m2, true)},
    .recompute = Recompute::none,
    .state = "f32",
    .weight_copy = WeightCopy::per_use,
    .scales_loss = false,
    .apply = apply_fp8};

const Recipe kCoatStaticRecipe = {
    .name = "coat-static",
    .help = "coat-fast with propagated scales in the place of delayed ones",
    .compute = Dtype::bf16,
    .linears = kScalifyFp8Recipe.linears,
    .recompute = Recompute::cheap,
    .state = "e4m3+x",
    .weight_copy = WeightCopy::per_step,
    .fast_accumulate = FastAccumulate::all,
    .activations = Dtype::e4m3,
    .scales_loss = false,
    .apply = apply_coat};

}  // namespace octet
