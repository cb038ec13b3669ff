#include "compile/functions.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "compile/compose.h"
#include "compile/update_rules.h"
#include "ir/builder.h"
#include "ir/linear_use.h"
#include "ir/op_def.h"
#include "passes/autodiff.h"
#include "passes/freeze.h"
#include "passes/lora.h"
#include "passes/lower/chunk_head.h"
#include "passes/memory/recompute.h"
#include "passes/rewrite/simplify.h"
#include "passes/scalify/scalify.h"

namespace octet {
namespace {

Graph overwrite(const Graph& typed, const ProgramOptions& options, const BatchSize&) {
  return accumulate(typed, Accumulate::overwrite, options);
}

Graph add(const Graph& typed, const ProgramOptions& options, const BatchSize&) {
  return accumulate(typed, Accumulate::add, options);
}

Graph derive(const Graph& typed, const ProgramOptions&, const BatchSize&) {
  return derive_weights(typed);
}

Graph unflagged(const Graph& typed, const ProgramOptions&, const BatchSize&) {
  return without_output(typed, kQuantizerFlag);
}

Graph updated(const Graph& typed, const ProgramOptions& options, const BatchSize&) {
  return append_update(typed, options);
}

Graph update_alone(const Graph& typed, const ProgramOptions& options, const BatchSize&) {
  return update_from_accumulators(typed, options);
}

Graph cached(const Graph& typed, const ProgramOptions&, const BatchSize& size) {
  return with_cache(without_output(typed, kQuantizerFlag), size);
}

Graph filled(const Graph& typed, const ProgramOptions&, const BatchSize& size) {
  return with_cache(without_output(typed, kQuantizerFlag), size, FixedKeys::written);
}

Graph encoded(const Graph& typed, const ProgramOptions&, const BatchSize& size) {
  return encode_source(typed, size);
}

Graph cache_alone(const Graph& typed, const ProgramOptions& options, const BatchSize& size) {
  return remove_dead(without_output(cached(typed, options, size), "logits"));
}

Graph picked(const Graph& typed, const ProgramOptions& options, const BatchSize& size) {
  Graph graph = cached(typed, options, size);
  const ValueId logits = graph.find_output("logits")->value;
  Builder b(graph);
  b.tag.origin = "pick";
  b.output("token", b.emit1(OpCode::argmax, AxisAttrs{.axis = 1}, {logits}));
  b.output("top",
           b.emit_typed(OpCode::reduce_max, AxesAttrs{.axes = {1}}, {logits}, {Dtype::f32})[0]);
  return without_output(graph, "logits");
}

constexpr FunctionDef kFunctions[] = {
    {function::step, FunctionSource::training, updated},
    {function::micro_first, FunctionSource::training, overwrite},
    {function::micro_next, FunctionSource::training, add},
    {function::update, FunctionSource::training, update_alone},
    {function::prepare_state, FunctionSource::training, derive},
    {function::gather_weights, FunctionSource::training, update_alone},
    {function::evaluate, FunctionSource::loss, unflagged},
    {function::logits, FunctionSource::logits, unflagged},
    {function::encode, FunctionSource::logits, encoded},
    {function::prefill, FunctionSource::logits, filled},
    {function::decode, FunctionSource::logits, cached},
    {function::pick, FunctionSource::logits, picked},
    {function::fill, FunctionSource::logits, cache_alone},
    {function::score, FunctionSource::loss, cached},
};

}  // namespace

const FunctionDef& find_function(std::string_view name) {
  const auto it = std::find_if(std::begin(kFunctions), std::end(kFunctions),
                               [&](const FunctionDef& def) { return def.name == name; });
  CHECK(it != std::end(kFunctions));
  return *it;
}

bool has_measuring_steps(const ProgramOptions& options) {
  const Scaling own = find_recipe(options.recipe).scaling;
  return options.recipe_options.scaling.value_or(own) == Scaling::periodic;
}

StepKind step_kind(const ProgramOptions& options, uint32_t attempt) {
  const bool measures = has_measuring_steps(options) && attempt % kRescalePeriod == 0;
  return measures ? StepKind::measuring : StepKind::plain;
}

const Graph& TypedGraphs::graph(FunctionSource source, const BatchSize& size, StepKind kind) {
  if (source == FunctionSource::training) return training(size, kind);
  return forward(size, source == FunctionSource::loss ? ForwardKind::loss : ForwardKind::outputs);
}

namespace {

// Scales that are propagated through each step of a recurrence leave every format's range.
void expect_measured_steps(const Recipe& recipe, const Graph& graph) {
  if (recipe.scales_loss) return;
  for (const Node& node : graph.nodes) {
    const std::string_view linear = linear_of_use(node.tag.origin);
    if (linear == node.tag.origin) continue;
    throw Error(
        ErrorCode::invalid_argument,
        "recipe.base: expected a recipe that measures scales for {}, whose linear {} is run "
        "at every step of a text, got {}",
        graph.name, linear, recipe.name);
  }
}

}  // namespace

namespace {

// True if the target has no kernel for a node whose floats are f32.
bool lacks_kernel(const Graph& graph, const Node& node, const Catalogue& catalogue) {
  Graph one;
  one.phase = Phase::typed;
  Builder b(one);
  ValueIds operands = node.operands;
  for (ValueId& id : operands) {
    if (id == kNoValue) continue;
    TensorType type = graph.type(id);
    if (is_float(type.dtype)) type.dtype = Dtype::f32;
    id = b.input(InputKind::batch, fmt::to_string(id), std::move(type));
  }
  b.emit(node.op, node.attrs, std::move(operands));
  return !catalogue.choose(one, one.nodes.front());
}

}  // namespace

// The model's graph, with the steps of ops that the target lacks and that are expanded there.
Graph TypedGraphs::built(const BatchSize& size, ForwardKind kind) {
  Graph graph = options_.forward(size, kind);
  const auto is_lacking = [&](const Graph& of, const Node& node) {
    return op_def(node.op).is_expanded && lacks_kernel(of, node, catalogue_);
  };
  if (std::ranges::none_of(graph.nodes, [&](const Node& node) { return is_lacking(graph, node); }))
    return graph;
  const Pass pass{.name = "expand",
                  .run = [&](const Graph& whole) { return decompose(whole, is_lacking); }};
  return run_pass(pass, graph, &log_);
}

// Logical to Typed, as run and recipe choose.
std::vector<Pass> TypedGraphs::typing(const RecipeOptions& options) const {
  const Recipe recipe = chosen_recipe(options_.recipe, options);
  RecipeOptions chosen = options;
  chosen.k_major = catalogue_.target().k_major;
  const Recompute what = options_.recompute.value_or(recipe.recompute);
  std::vector<Pass> passes = {
      {.name = recipe.name,
       .run =
           [recipe, chosen](const Graph& graph) {
             expect_measured_steps(recipe, graph);
             check_overrides(recipe.name, recipe.linears, graph, chosen.overrides);
             return recipe.apply(recipe, graph, chosen);
           }},
      {.name = "recompute",
       .run = [what, n_layers = options_.recompute_layers](const Graph& graph) {
         return recompute(graph, {.what = what, .n_layers = n_layers});
       }}};
  if (const int64_t bytes = options_.head_chunk_bytes; bytes > 0) {
    passes.push_back({.name = "chunk_head", .run = [bytes](const Graph& graph) {
                        return chunk_head(graph, {.chunk_bytes = bytes});
                      }});
  }
  return passes;
}

// Passes before typing: first what is frozen, which the rest needs to know.
std::vector<Pass> TypedGraphs::logical(const LoraOptions& lora) const {
  std::vector<Pass> passes;
  if (!options_.freeze.empty()) {
    passes.push_back({.name = "freeze", .run = [patterns = options_.freeze](const Graph& graph) {
                        return freeze_matching(graph, patterns);
                      }});
  }
  if (lora.rank > 0) {
    passes.push_back(
        {.name = "lora", .run = [lora](const Graph& graph) { return add_lora(graph, lora); }});
  }
  return passes;
}

// Drops metrics that an evaluation alone reads: all but each loss's first.
std::vector<Pass> TypedGraphs::evaluated_only() const {
  std::vector<std::string> others;
  for (const LossTerm& term : options_.losses) {
    for (size_t i = 1; i < term.metrics.size(); ++i) others.push_back(term.metrics[i]);
  }
  if (others.empty()) return {};
  return {{.name = "drop_metrics", .run = [others](Graph graph) {
             for (const std::string& name : others) graph = without_output(graph, name);
             return remove_dead(graph);
           }}};
}

const Graph& TypedGraphs::training(const BatchSize& size, StepKind kind) {
  const auto [it, added] = training_.try_emplace({size, kind});
  if (!added) return it->second;
  RecipeOptions options = options_.recipe_options;
  if (kind == StepKind::plain && has_measuring_steps(options_)) options.scaling = Scaling::stored;
  options.recompute = options_.recompute;
  options.detects_overflow = static_cast<bool>(options_.loss_scale);
  std::vector<Pass> passes = evaluated_only();
  std::ranges::move(logical(options_.lora), std::back_inserter(passes));
  const AutodiffOptions gradients{.loss_scale = options_.loss_scale};
  passes.push_back({.name = "autodiff",
                    .run = [gradients](const Graph& graph) { return autodiff(graph, gradients); }});
  passes.push_back({.name = "simplify", .run = simplify});
  BatchSize trained = size;
  trained.statistics = BatchStatistics::own;
  const Graph logical = run_passes(built(trained, ForwardKind::loss), passes, &log_);
  options_.optim = for_parameters(std::move(options_.optim), logical);
  // Gradients of a model with unit variances are near 1.
  if (options_.optim.stores_scaled() && !find_recipe(options_.recipe).unit_scales) {
    options_.optim.gradient_rms = predicted_gradients(logical, initial_rms(logical, options));
  }
  return it->second = run_passes(logical, typing(options), &log_);
}

const Graph& TypedGraphs::forward(const BatchSize& size, ForwardKind kind) {
  const auto [it, added] = forward_.try_emplace({kind, size});
  if (!added) return it->second;
  RecipeOptions options = options_.recipe_options;
  options.scaling = forward_scaling(options.scaling.value_or(find_recipe(options_.recipe).scaling));
  if (options_.inference_only) options.weight_copy = WeightCopy::per_use;
  LoraOptions lora = options_.lora;
  lora.dropout = 0;
  std::vector<Pass> passes = logical(lora);
  if (options_.freezes_parameters)
    passes.push_back({.name = "freeze_parameters",
                      .run = [](const Graph& graph) { return freeze_parameters(graph); }});
  passes.push_back({.name = "simplify", .run = simplify});
  std::ranges::move(typing(options), std::back_inserter(passes));
  passes.insert(passes.end(), options_.forward_passes.begin(), options_.forward_passes.end());
  return it->second = run_passes(built(size, kind), passes, &log_);
}

}  // namespace octet
