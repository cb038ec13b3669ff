// scalify_fp16: fp16 whose values carry power-of-two scales that are known before the step
// (passes/scalify): no loss scaling. Gradients are graph outputs in f32, as values.
// scalify_fp32: fp32 with the same scales: its bits, by which the rules are tested.
// scalify_fp8, coat-static: fp8_linear and coat with the scales that the same rules predict in the
// place of measured ones; values are BF16, whose range needs no scales, and quantizers' scales are
// constants, so that no maximum is taken anywhere in the step. scalify_fp8 may compute in FP16:
// then values carry scales, as in scalify_fp16. Source: Balanca et al. 2024 (Scalify);
// docs/scalify.md.
#include "passes/scalify/scalify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ir/linear_use.h"
#include "ir/op_def.h"
#include "passes/precision/linear_groups.h"
#include "passes/precision/list.h"
#include "passes/precision/quantize_linears.h"
#include "passes/precision/store_gradients.h"
#include "passes/precision/store_groups.h"
#include "passes/rewrite/simplify.h"
#include "passes/scalify/fold.h"

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

enum class Linears : uint8_t { of_layers, all };

// Calls f(linear, node, slot, kind) for both factors of each linear's GEMMs.
template <typename F>
void for_each_factor(const Graph& graph, Linears which, const F& f) {
  std::map<std::string, ValueId> inputs;  // x, by linear
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const GemmRole role = linear_role(node);
    const bool is_meant = which == Linears::all && role != GemmRole::other;
    if (!is_meant && !is_layer_gemm(node)) continue;
    const std::string name = member_name(node);
    if (role == GemmRole::forward) inputs[name] = node.in(Gemm::a);
    for (const size_t slot : {size_t{Gemm::a}, size_t{Gemm::b}}) {
      const bool is_x = role == GemmRole::forward ? slot == Gemm::a : node.in(slot) == inputs[name];
      const bool is_w = role == GemmRole::forward
                            ? slot == Gemm::b
                            : role == GemmRole::dgrad && is_weight(graph, node.in(slot));
      f(name, static_cast<NodeId>(n), slot,
        is_x   ? OperandKind::x
        : is_w ? OperandKind::w
               : OperandKind::dy);
    }
  }
}

int rescale_of(const RecipeOptions& options, const std::string& linear, std::string_view what) {
  if (options.edge_scales.empty()) return 0;
  return edge_scale(options.edge_scales, fmt::format("{}.{}", linear_of_use(linear), what));
}

// Linears whose results an activation reads: kept in codes of one scale where the run asks for it.
std::vector<const Node*> stored_results(const Graph& graph, const RecipeOptions& options) {
  if (!options.quantizes_linear_outputs) return {};
  std::set<ValueId> read;
  for (const Node& node : graph.nodes) {
    if (node.tag.layer < 0 || std::holds_alternative<NormAttrs>(node.attrs)) continue;
    if (!op_def(node.op).saves) continue;
    for (const ScalePlace place : op_def(node.op).scales) read.insert(node.in(place.operand));
  }
  std::vector<const Node*> result;
  for (const Node& node : graph.nodes) {
    const bool is_linear = node.tag.layer >= 0 && linear_role(node) == GemmRole::forward;
    if (is_linear && read.contains(node.out(Gemm::y))) result.push_back(&node);
  }
  return result;
}

// An edge's scale that no operand has would silently change nothing. A function without a backward
// pass has no gradients to look for.
void check_edges(const Graph& graph, const RecipeOptions& options) {
  if (options.edge_scales.empty()) return;
  std::set<std::string> edges, of_first_layer;
  for_each_factor(graph, Linears::of_layers,
                  [&](const std::string& linear, NodeId n, size_t, OperandKind kind) {
                    const std::string edge =
                        fmt::format("{}.{}", linear_of_use(linear), enum_name(kind));
                    edges.insert(edge);
                    if (graph.node(n).tag.layer == 0) of_first_layer.insert(edge);
                  });
  for (const Node* node : stored_results(graph, options)) {
    const std::string edge = linear_name(*node) + ".y";
    edges.insert(edge);
    if (node->tag.layer == 0) of_first_layer.insert(edge);
  }
  const bool has_gradients =
      std::ranges::any_of(edges, [](const std::string& edge) { return edge.ends_with(".dy"); });
  if (!has_gradients) return;
  for (const EdgeScale& scale : options.edge_scales) {
    const bool is_met = std::ranges::any_of(
        edges, [&](const std::string& edge) { return matches_pattern(scale.pattern, edge); });
    if (is_met) continue;
    throw Error(ErrorCode::invalid_argument,
                "recipe.edge_scales: expected a pattern that matches an operand of a linear ({}), "
                "got {}",
                fmt::join(of_first_layer, ", "), scale.pattern);
  }
}

ScalifyOptions carrying(const Graph& graph, const RecipeOptions& options) {
  ScalifyOptions result{.rounding = options.scale_rounding,
                        .input_rms = initial_rms(graph, options),
                        .gradients = options.scaled_gradient};
  if (options.rescale != DynamicRescale::none) result.norm_gradients = RescaleNorm::l2;
  result.rescales_gradients = options.rescale == DynamicRescale::norms_and_gradients;
  if (result.rescales_gradients && !result.gradients) result.gradients = Dtype::f32;
  return result;
}

// A parameter's gradient is a sum over tokens, and may be as many times as large as predicted where
// they agree (biases, a frequent token's row): it is f32 up to where it is rescaled or rounded. So
// is what a norm is summed up of, whose squares are below FP16's range.
Graph widen_gradients(const Graph& typed) {
  const auto readers = uses(typed);
  Graph result = typed;
  ById<bool> is_f32(typed.values.size(), false);
  for (const GraphOutput& output : typed.outputs)
    is_f32[output.value] = is_gradient_name(output.name);
  const auto is_read_in_f32 = [&](ValueId id) {
    const auto& nodes = readers[id];
    return !nodes.empty() && std::ranges::all_of(nodes, [&](NodeId n) {
      const ValueId y = typed.node(n).results[0];
      return is_f32[y] || typed.type(y).shape.empty();
    });
  };
  const auto widen = [&](ValueId id) {
    if (typed.value(id).producer == kNoNode || !is_read_in_f32(id)) return;
    is_f32[id] = true;
    if (is_float(typed.type(id).dtype)) result.value(id).type.dtype = Dtype::f32;
  };
  for (auto node = typed.nodes.rbegin(); node != typed.nodes.rend(); ++node) {
    const OpCode op = node->op;
    if (op == OpCode::mul || op == OpCode::square || op == OpCode::abs) widen(node->results[0]);
  }
  for (auto node = typed.nodes.rbegin(); node != typed.nodes.rend(); ++node) {
    const OpCode op = node->op;
    const bool hands_on = op == OpCode::rescale || op == OpCode::cast_in || op == OpCode::add ||
                          op == OpCode::slice || op == OpCode::pad;
    if (!hands_on || !is_f32[node->results[0]]) continue;
    for (const ValueId operand : node->operands) widen(operand);
  }
  return result;
}

// Values that rules want with scale 1 are f32 where a rescale or a GEMM makes them for a function
// that compresses its range, or where they are rescaled for a norm, the loss, an argmax and the
// like: they may be beyond FP16's range.
Graph widen_unscaled(Graph typed) {
  const auto reads_rescaled = [](OpCode op) {
    return is_norm(op) || op == OpCode::cross_entropy || op == OpCode::argmax ||
           op == OpCode::argmin || op == OpCode::is_finite || op == OpCode::stop_scaling;
  };
  for (const Node& node : typed.nodes) {
    const bool reads_value = op_def(node.op).is_transcendental;
    if (!reads_rescaled(node.op) && !reads_value) continue;
    const ValueId x = node.operands[0];
    const bool is_made = typed.producer(x, OpCode::rescale) != nullptr ||
                         (reads_value && typed.producer(x, OpCode::gemm) != nullptr);
    Dtype& dtype = typed.value(x).type.dtype;
    if (is_made && dtype == Dtype::fp16) dtype = Dtype::f32;
  }
  return typed;
}

Graph typed_scales(const Recipe& recipe, const Scalified& scaled, FrozenFormat frozen) {
  const Graph typed =
      assign_types(simplify(fold_rescales(scaled.graph)), recipe.compute, Dtype::f32);
  const Graph wide = cast_behind_moves(widen_gradients(widen_unscaled(typed)));
  return store_frozen(store_gradients(wide), frozen);
}

Graph apply_scales(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  check_edges(graph, options);
  ScalifyOptions scales = carrying(graph, options);
  for_each_factor(graph, Linears::of_layers,
                  [&](const std::string& linear, NodeId n, size_t slot, OperandKind kind) {
                    if (const int log2 = rescale_of(options, linear, enum_name(kind)))
                      scales.rescales[{n, slot}] = log2;
                  });
  return typed_scales(recipe, scalify(graph, scales), options.frozen);
}

Scalified uncarried(const Graph& graph, const RecipeOptions& options) {
  return scalify(graph, {.carries = false, .input_rms = initial_rms(graph, options)});
}

// RMS that the rules predict for the data of each linear's operands, before a run's own rescales.
std::map<std::string, LinearRms> predictions(const Scalified& predicted,
                                             const RecipeOptions& options) {
  check_edges(predicted.graph, options);
  std::map<std::string, LinearRms> linears;
  const auto add = [&](const std::string& linear, NodeId n, size_t slot, OperandKind kind) {
    const Node& node = predicted.graph.node(n);
    const GemmRole role = linear_role(node);
    const int rescale = is_layer_gemm(node) ? rescale_of(options, linear, enum_name(kind)) : 0;
    const double rms = predicted.data_rms[node.in(slot)] - rescale;
    LinearRms& of = linears[linear];
    if (role == GemmRole::forward) (kind == OperandKind::x ? of.x : of.w) = rms;
    if (role == GemmRole::wgrad && kind == OperandKind::dy) of.dy = rms;
  };
  for_each_factor(predicted.graph, Linears::all, add);
  return linears;
}

// FP16 has not BF16's range: its values carry scales, as those of scalify_fp16.
Graph apply_fp8(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  if (recipe.compute == Dtype::fp16) {
    const Scalified scaled = scalify(graph, carrying(graph, options));
    return quantize_by_recipe(recipe, typed_scales(recipe, scaled, options.frozen), options,
                              predictions(scaled, options));
  }
  return quantize_by_recipe(recipe, typed_graph(recipe, graph, options), options,
                            predictions(uncarried(graph, options), options));
}

Graph apply_coat(const Recipe& recipe, const Graph& graph, const RecipeOptions& options) {
  const Scalified predicted = uncarried(graph, options);
  StoreGroupsOptions stored{.group = options.activation_group,
                            .forward_reads = options.forward_reads,
                            .attention = options.saved_attention};
  for (const Node* node : stored_results(predicted.graph, options)) {
    const std::string linear = member_name(*node);
    const double rms = predicted.data_rms[node->out(Gemm::y)] - rescale_of(options, linear, "y");
    stored.result_scales.emplace(linear, predicted_scale(rms, stored.dtype));
  }
  return quantize_by_recipe(recipe, store_groups(typed_graph(recipe, graph, options), stored),
                            options, predictions(predicted, options));
}

}  // namespace

const Recipe kScalifyFp32Recipe = {
    .name = "scalify_fp32",
    .help = "fp32 whose values carry propagated scales: the same bits",
    .compute = Dtype::f32,
    .scales_loss = false,
    .apply = apply_scales};

const Recipe kScalifyFp16Recipe = {
    .name = "scalify_fp16",
    .help = "FP16 with scales propagated through the step (Scalify): no loss scaling",
    .compute = Dtype::fp16,
    .scales_loss = false,
    .apply = apply_scales};

const Recipe kScalifyFp8Recipe = {
    .name = "scalify_fp8",
    .help = "fp8_linear with propagated scales: no maximum is taken in the step",
    .linears = tensor_linears(Dtype::e4m3, Dtype::e5m2),
    .weight_copy = WeightCopy::per_use,
    .scales_loss = false,
    .apply = apply_fp8};

const Recipe kCoatStaticRecipe = {
    .name = "coat-static",
    .help = "coat-fast with propagated scales in the place of delayed ones",
    .linears = kScalifyFp8Recipe.linears,
    .recompute = Recompute::cheap,
    .state = "e4m3+x",
    .weight_copy = WeightCopy::per_step,
    .fast_accumulate = FastAccumulate::all,
    .activations = Dtype::e4m3,
    .scales_loss = false,
    .apply = apply_coat};

}  // namespace octet
