#include "compile/program.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "compile/weight_copies.h"
#include "ir/verify.h"
#include "passes/autodiff.h"
#include "passes/lower/chunk_head.h"
#include "passes/lower/fuse.h"
#include "passes/simplify.h"

namespace octet {

std::string_view enum_name(FunctionKind kind) {
  constexpr std::string_view names[] = {"step",          "micro_first", "micro_next", "update",
                                        "prepare_state", "evaluate",    "logits"};
  return names[static_cast<int>(kind)];
}

namespace {

bool is_gradient(const GraphOutput& output) {
  return is_gradient_name(output.name);
}

// Removes the output and returns its value, or kNoValue where there is none.
ValueId take_output(Graph& graph, std::string_view name) {
  const GraphOutput* output = graph.find_output(name);
  if (output == nullptr) return kNoValue;
  const ValueId value = output->value;
  graph.outputs.erase(graph.outputs.begin() + (output - graph.outputs.data()));
  return value;
}

// The history that the output updates; nullptr where it updates none.
const GraphInput* history_of(const Graph& graph, const GraphOutput& output) {
  const GraphInput* input = output.updates == kNoValue ? nullptr : graph.input_of(output.updates);
  return input != nullptr && input->key.use == StateUse::amax_history ? input : nullptr;
}

// The histories' next values become those of accumulated histories: each already holds this
// micro-batch's maximum at its end and is shifted, so that of two the larger is right everywhere.
void accumulate_histories(Graph& graph, bool add) {
  Builder builder(graph);
  builder.tag = Tag{.layer = -1, .role = Role::backward, .origin = "accumulate"};
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const GraphInput* history = history_of(graph, graph.outputs[i]);
    if (history == nullptr) continue;
    const std::string site = history->key.owner;
    const ValueId next = graph.outputs[i].value;
    const ValueId total = builder.state(StateUse::accumulated_history, site, graph.type(next));
    graph.outputs[i] = {
        .name = next_name(state_name(StateUse::accumulated_history, site)),
        .value = add ? builder.emit1(OpCode::maximum, NoAttrs{}, {total, next}) : next,
        .updates = total};
  }
}

// Turns each gradient output into the next value of the parameter's accumulator, and the
// quantizers' flag likewise.
Graph accumulate_gradients(const Graph& graph, bool add) {
  Graph result = graph;
  Builder builder(result);
  builder.tag = Tag{.layer = -1, .role = Role::backward, .origin = "accumulate"};
  std::set<ValueId> seen;
  for (GraphOutput& output : result.outputs) {
    if (!is_gradient(output)) continue;
    const std::string parameter = *gradient_parameter(output.name);
    const ValueId total =
        builder.state(StateUse::accumulator, parameter, result.type(output.value));
    output.updates = total;
    if (add) {
      output.value = builder.add(total, output.value);
    } else if (!seen.insert(output.value).second) {
      output.value =
          builder.unary(OpCode::stop_gradient, output.value);  // one value, two homes: a copy
    }
  }
  accumulate_histories(result, add);
  if (const ValueId flag = take_output(result, kQuantizerFlag); flag != kNoValue) {
    const ValueId total = builder.state(StateUse::accumulated_flag, "", result.type(flag));
    builder.next(total, add ? builder.emit1(OpCode::any_of, NoAttrs{}, {total, flag}) : flag);
  }
  return result;
}

// A step that is refused changes no state: histories move on only where it is not.
void hold_histories(Builder& builder) {
  Graph& graph = builder.graph();
  const ValueId refused = graph.find_output("found_nonfinite")->value;
  builder.tag = Tag{.layer = -1, .role = Role::update, .origin = "amax_history"};
  std::map<Shape, ValueId> flags;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    if (history_of(graph, graph.outputs[i]) == nullptr) continue;
    const auto [name, next, history] = graph.outputs[i];
    const Shape shape = graph.type(history).shape;
    const auto [flag, added] = flags.try_emplace(shape, kNoValue);
    if (added) flag->second = builder.broadcast(refused, shape, {});
    graph.outputs[i].value = builder.select(flag->second, history, next);
  }
}

}  // namespace

Program::Program(ProgramOptions options, const Catalogue& catalogue)
    : options_(std::move(options)), catalogue_(catalogue) {
  const std::vector<FunctionKind> functions =
      options_.inference_only ? std::vector{FunctionKind::evaluate} : train_functions();
  for (const FunctionKind kind : functions) {
    Layout inputs;
    const Graph graph = build(kind, options_.train);
    Graph kept;
    for (const GraphInput& input : graph.inputs) {
      const bool lasts = input.kind == InputKind::parameter || input.kind == InputKind::state ||
                         input.kind == InputKind::derived;
      if (!lasts) continue;
      kept.inputs.push_back({.value = static_cast<ValueId>(kept.values.size()),
                             .kind = input.kind,
                             .name = input.name,
                             .key = input.key});
      kept.values.push_back({.type = graph.type(input.value)});
    }
    layout_.add_inputs(kept);
  }
}

std::vector<FunctionKind> Program::train_functions() const {
  if (options_.accumulate == 1) return {FunctionKind::step};
  return {FunctionKind::micro_first, FunctionKind::micro_next, FunctionKind::update};
}

bool Program::has_derived() const {
  return std::any_of(layout_.slots.begin(), layout_.slots.end(),
                     [](const auto& slot) { return slot.second.kind == InputKind::derived; });
}

Graph Program::typed_graph(const Graph& logical, RecipeOptions options) const {
  const Recipe& recipe = find_recipe(options_.recipe);
  options.k_major = catalogue_.wants_k_major();
  check_overrides(recipe.name, recipe.linears, logical, options.overrides);
  Graph typed = recipe.apply(recipe, logical, options);
  verify(typed);
  typed = recompute(typed, {.what = options_.recompute.value_or(recipe.recompute)});
  verify(typed);
  if (options_.head_chunk_bytes == 0) return typed;
  typed = chunk_head(typed, {.chunk_bytes = options_.head_chunk_bytes});
  verify(typed);
  return typed;
}

Graph Program::training_graph(const BatchSize& size) const {
  const Graph forward = options_.forward(size, ForwardKind::loss);
  verify(forward);
  const Graph logical = simplify(autodiff(forward));
  verify(logical);
  RecipeOptions options = options_.recipe_options;
  options.recompute = options_.recompute;
  return typed_graph(logical, options);
}

// Scales are this batch's own, so that a model means the same in every program; weights are codes
// already where training keeps them.
Graph Program::forward_graph(const BatchSize& size, ForwardKind kind) const {
  RecipeOptions options = options_.recipe_options;
  options.scaling = Scaling::current;
  if (options_.inference_only) options.weight_copy = WeightCopy::per_use;
  Graph graph = typed_graph(simplify(options_.forward(size, kind)), options);
  take_output(graph, kQuantizerFlag);
  return graph;
}

std::vector<UpdateItem> Program::update_items(const Graph& graph) const {
  std::vector<UpdateItem> items;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != InputKind::parameter) continue;
    const GraphOutput* gradient = graph.find_output(gradient_name(input.name));
    const bool decay = std::find(options_.no_decay.begin(), options_.no_decay.end(), input.name) ==
                       options_.no_decay.end();
    items.push_back({.parameter = input.name,
                     .weight = input.value,
                     .gradient = gradient == nullptr ? kNoValue : gradient->value,
                     .decay = decay});
  }
  return items;
}

Graph Program::step_graph(const Graph& typed) const {
  Graph graph = without_weight_copies(typed);
  const std::vector<UpdateItem> items = update_items(graph);
  const GraphOutput* output = graph.find_output(kQuantizerFlag);
  const ValueId flag = output == nullptr ? kNoValue : output->value;
  std::erase_if(graph.outputs, is_gradient);
  Builder builder(graph);
  build_update(builder, items, options_.optim, flag);
  hold_histories(builder);
  append_weight_copies(builder, typed);
  return graph;
}

Graph Program::update_graph(const Graph& typed) const {
  Graph graph;
  graph.phase = typed.phase;
  Builder builder(graph);
  std::vector<UpdateItem> items = update_items(typed);
  for (UpdateItem& item : items) {
    const TensorType& gradient = typed.type(item.gradient);
    item.weight = builder.input(InputKind::parameter, item.parameter, typed.type(item.weight));
    item.gradient = builder.state(StateUse::accumulator, item.parameter, gradient);
  }
  ValueId flag = kNoValue;
  if (const GraphOutput* output = typed.find_output(kQuantizerFlag); output != nullptr)
    flag = builder.state(StateUse::accumulated_flag, "", typed.type(output->value));
  for (const GraphOutput& output : typed.outputs) {
    const GraphInput* source = history_of(typed, output);
    if (source == nullptr) continue;
    const TensorType& type = typed.type(output.updates);
    const ValueId history = builder.state(StateUse::amax_history, source->key.owner, type);
    builder.next(history, builder.state(StateUse::accumulated_history, source->key.owner, type));
  }
  build_update(builder, items, options_.optim, flag);
  hold_histories(builder);
  append_weight_copies(builder, typed);
  return graph;
}

Graph Program::build(FunctionKind kind, const BatchSize& size) const {
  Graph graph;
  switch (kind) {
    case FunctionKind::evaluate:
      graph = forward_graph(size, ForwardKind::loss);
      break;
    case FunctionKind::logits:
      graph = forward_graph(size, ForwardKind::logits);
      break;
    case FunctionKind::prepare_state: {
      const Graph typed = training_graph(size);
      graph.phase = typed.phase;
      Builder builder(graph);
      append_weight_copies(builder, typed);
      break;
    }
    case FunctionKind::step:
      graph = step_graph(training_graph(size));
      break;
    case FunctionKind::micro_first:
      graph = accumulate_gradients(without_weight_copies(training_graph(size)), false);
      break;
    case FunctionKind::micro_next:
      graph = accumulate_gradients(without_weight_copies(training_graph(size)), true);
      break;
    case FunctionKind::update:
      graph = update_graph(training_graph(size));
      break;
  }
  graph.name = enum_name(kind);
  verify(graph);
  return graph;
}

const Plan& Program::plan(FunctionKind kind, const BatchSize& size) {
  auto& slot = plans_[{kind, size.batch, size.seq}];
  if (!slot) {
    FuseReport report;
    const Graph graph = fuse(build(kind, size), &report);
    verify(graph);
    if (options_.strict_fusion && !report.near_misses.empty()) {
      throw Error(ErrorCode::invalid_argument,
                  "[fuse] recipe.strict_fusion: {} did not fire in {}, the first: {}",
                  report.near_misses.size(), enum_name(kind), report.near_misses.front());
    }
    Layout layout = layout_;
    layout.add_inputs(graph);
    slot = std::make_unique<Plan>(make_plan(graph, layout, catalogue_));
    slot->near_misses = std::move(report.near_misses);
  }
  return *slot;
}

int64_t Program::planned_bytes() {
  for (const FunctionKind kind : train_functions()) plan(kind);
  if (has_derived()) plan(FunctionKind::prepare_state);
  plan(FunctionKind::evaluate);
  int64_t bytes[kLaneCount];
  lane_bytes(bytes);
  return bytes[0] + bytes[1] + bytes[2];
}

void Program::lane_bytes(int64_t (&bytes)[kLaneCount]) const {
  for (int lane = 0; lane < kLaneCount; ++lane) bytes[lane] = layout_.lane_bytes[lane];
  for (const auto& [key, plan] : plans_) {
    for (int lane = 0; lane < kLaneCount; ++lane)
      bytes[lane] = std::max(bytes[lane], plan->lane_bytes[lane]);
  }
}

}  // namespace octet
