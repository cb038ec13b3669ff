#include "compile/compose.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "compile/weight_copies.h"
#include "passes/rewrite/simplify.h"
#include "passes/rewrite/stored_sum.h"

namespace octet {
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

StateUse accumulated(StateUse history) {
  return state_def(history).gathered_in;
}

// True if an update may keep this gradient as data and scale: a node makes its value of them. Ranks
// sum values (passes/parallel/shard_updates.h).
bool is_kept_gradient(const Graph& graph, ValueId gradient, const ProgramOptions& options) {
  return !options.parallel.is_active() && is_stored_gradient(graph, gradient);
}

// Leaves the making of such values to the update (optim/optimizer.cpp). Whether there is one.
bool keep_data_and_scale(Graph& graph, const std::vector<UpdateItem>& items,
                         const ProgramOptions& options) {
  bool any = false;
  for (const UpdateItem& item : items) {
    if (!is_kept_gradient(graph, item.gradient, options)) continue;
    Tag& tag = graph.node(graph.value(item.gradient).producer).tag;
    tag.role = Role::update, tag.origin = item.parameter;
    any = true;
  }
  return any;
}

// Factor that an accumulator's data are multiplied with.
ValueId accumulator_scale(Builder& builder, const std::string& parameter) {
  return builder.state(StateUse::accumulated_rescale, parameter + ".gradient", {Dtype::f32, {}});
}

// The sum of gradients that are kept in few bytes.
void accumulate_kept(Builder& builder, GraphOutput& output, const std::string& parameter,
                     bool add) {
  const Shape shape = builder.shape(output.value);
  const ValueId total = builder.state(StateUse::accumulator, parameter, {Dtype::fp16, shape});
  const ValueId scale = accumulator_scale(builder, parameter);
  const ValueId sum =
      add ? builder.add(value_of(builder, {total, scale}), output.value) : output.value;
  const ValueId amax = builder.emit(OpCode::amax, NoAttrs{}, {sum})[AmaxOp::amax];
  const StoredSum next = store_sum(builder, sum, amax);
  output.value = next.data;
  output.updates = total;
  builder.next(scale, next.scale);
}

// The history that the output updates, of maxima or of a rescale factor; nullptr where it updates
// none.
const GraphInput* history_of(const Graph& graph, const GraphOutput& output) {
  const GraphInput* input = output.updates == kNoValue ? nullptr : graph.input_of(output.updates);
  if (input == nullptr) return nullptr;
  return accumulated(input->key.use) == StateUse::none ? nullptr : input;
}

// The histories' next values become those of accumulated histories: each already holds this
// micro-batch's maximum at its end and is shifted, so that of two the larger is right everywhere.
// So it is of scales, which grow with the maximum that they are measured from.
void accumulate_histories(Graph& graph, bool add) {
  Builder builder(graph);
  builder.tag = Tag{.layer = -1, .role = Role::backward, .origin = "accumulate"};
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const GraphInput* history = history_of(graph, graph.outputs[i]);
    if (history == nullptr) continue;
    const std::string site = history->key.owner;
    const StateUse use = accumulated(history->key.use);
    const ValueId next = graph.outputs[i].value;
    const ValueId total = builder.state(use, site, graph.type(next));
    graph.outputs[i] = {.name = next_name(state_name(use, site)),
                        .value = add ? builder.maximum(total, next) : next,
                        .updates = total};
  }
}

// Each micro-batch's next value of a statistic is made from the old one: the step's is their mean.
void accumulate_statistics(Graph& graph, bool add) {
  Builder builder(graph);
  builder.tag = Tag{.layer = -1, .role = Role::backward, .origin = "accumulate"};
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    if (!is_next_statistic(graph, graph.outputs[i])) continue;
    const std::string name = graph.input_of(graph.outputs[i].updates)->name;
    const ValueId next = graph.outputs[i].value;
    const ValueId total = builder.state(StateUse::accumulated_statistic, name, graph.type(next));
    graph.outputs[i] = {.name = next_name(state_name(StateUse::accumulated_statistic, name)),
                        .value = add ? builder.add(total, next) : next,
                        .updates = total};
  }
}

// A step that is skipped changes no state: amax histories and statistics move on only where it is
// not.
void keep_states(Builder& builder) {
  Graph& graph = builder.graph();
  const ValueId skipped = graph.find_output("found_nonfinite")->value;
  builder.tag = Tag{.layer = -1, .role = Role::update, .origin = "amax_history"};
  std::map<Shape, ValueId> flags;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const bool is_history = history_of(graph, graph.outputs[i]) != nullptr;
    if (!is_history && !is_next_statistic(graph, graph.outputs[i])) continue;
    builder.tag.origin = is_history ? "amax_history" : "statistics";
    const auto [name, next, history] = graph.outputs[i];
    const Shape shape = graph.type(history).shape;
    const auto [flag, added] = flags.try_emplace(shape, kNoValue);
    if (added) flag->second = builder.broadcast(skipped, shape, {});
    graph.outputs[i].value = builder.select(flag->second, history, next);
  }
}

// The update, and what a step that it skips does to the states of scales.
void guarded_update(Builder& builder, const std::vector<UpdateItem>& items,
                    const ProgramOptions& options, ValueId flag) {
  StepGuards guards{.flag = flag};
  if (options.loss_scale) guards.loss_scale = loss_scale(builder, options.loss_scale);
  build_update(builder, items, options.optim, guards);
  keep_states(builder);
  if (options.loss_scale) {
    const ValueId skipped = builder.graph().find_output("found_nonfinite")->value;
    update_loss_scale(builder, options.loss_scale, skipped);
  }
}

// Parameters that are matrices, and that a node of a layer reads.
std::set<ValueId> layer_matrices(const Graph& graph) {
  std::set<ValueId> matrices;
  for (const Node& node : graph.nodes) {
    if (node.tag.layer < 0) continue;
    for (const ValueId id : node.operands) {
      const GraphInput* input = id == kNoValue ? nullptr : graph.input_of(id);
      if (input != nullptr && input->kind == InputKind::parameter &&
          graph.type(id).shape.size() == 2)
        matrices.insert(id);
    }
  }
  return matrices;
}

// The last line for each parameter that the rules name (compile/update_rules.h).
using RulesByName = std::map<std::string_view, const OptimRule*>;

RulesByName rules_by_name(const OptimPolicy& policy) {
  RulesByName rules;
  for (const OptimRule& rule : policy.rules) rules[rule.pattern] = &rule;
  return rules;
}

void choose_rule(UpdateItem& item, UpdateKind kind, bool is_layer_matrix,
                 const RulesByName& rules) {
  item.rule = kind != UpdateKind::muon || is_layer_matrix ? kind : UpdateKind::adamw;
  const auto rule = rules.find(item.parameter);
  if (rule != rules.end()) item.rule = rule->second->kind, item.lr = rule->second->lr;
}

std::vector<UpdateItem> update_items(const Graph& graph, const ProgramOptions& options) {
  const RulesByName rules = rules_by_name(options.optim);
  const bool wants_matrices = options.optim.kind == UpdateKind::muon;
  const auto matrices = wants_matrices ? layer_matrices(graph) : std::set<ValueId>();
  std::vector<UpdateItem> items;
  std::map<std::string_view, ValueId> outputs;
  for (const GraphOutput& output : graph.outputs) outputs.emplace(output.name, output.value);
  const std::set<std::string_view> no_decay(options.no_decay.begin(), options.no_decay.end());
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != InputKind::parameter) continue;
    const auto gradient = outputs.find(gradient_name(input.name));
    items.push_back({.parameter = input.name,
                     .weight = input.value,
                     .gradient = gradient == outputs.end() ? kNoValue : gradient->second,
                     .decay = !no_decay.contains(input.name)});
    choose_rule(items.back(), options.optim.kind, matrices.contains(input.value), rules);
    items.back().lr *= options.optim.lr_factor(input.name);
    if (items.back().rule == UpdateKind::muon && graph.type(input.value).shape.size() != 2) {
      throw Error(
          ErrorCode::invalid_argument,
          "[optim] optim.rules: expected another rule than muon of '{}', which is no matrix",
          input.name);
    }
  }
  return items;
}

}  // namespace

Graph accumulate(const Graph& typed, Accumulate how, const ProgramOptions& options) {
  const bool add = how == Accumulate::add;
  Graph result = without_weight_copies(typed);
  Builder builder(result);
  builder.tag = Tag{.layer = -1, .role = Role::backward, .origin = "accumulate"};
  std::set<ValueId> seen;
  for (size_t i = 0, n = result.outputs.size(); i < n; ++i) {
    GraphOutput output = result.outputs[i];
    if (!is_gradient(output)) continue;
    const std::string parameter = *gradient_parameter(output.name);
    if (is_kept_gradient(result, output.value, options)) {
      accumulate_kept(builder, output, parameter, add);
      result.outputs[i] = output;
      continue;
    }
    const ValueId total =
        builder.state(StateUse::accumulator, parameter, result.type(output.value));
    output.updates = total;
    if (add) {
      output.value = builder.add(total, output.value);
    } else if (!seen.insert(output.value).second) {
      output.value =
          builder.unary(OpCode::stop_gradient, output.value);  // two aliased inputs: a copy
    }
    result.outputs[i] = output;
  }
  accumulate_histories(result, add);
  accumulate_statistics(result, add);
  if (const ValueId flag = take_output(result, kQuantizerFlag); flag != kNoValue) {
    const ValueId total = builder.state(StateUse::accumulated_flag, "", result.type(flag));
    builder.next(total, add ? builder.binary(OpCode::any_of, total, flag) : flag);
  }
  return result;
}

Graph append_update(const Graph& typed, const ProgramOptions& options) {
  Graph graph = without_weight_copies(typed);
  const std::vector<UpdateItem> items = update_items(graph, options);
  const GraphOutput* output = graph.find_output(kQuantizerFlag);
  const ValueId flag = output == nullptr ? kNoValue : output->value;
  std::erase_if(graph.outputs, is_gradient);
  const bool is_kept = keep_data_and_scale(graph, items, options);
  Builder builder(graph);
  guarded_update(builder, items, options, flag);
  append_weight_copies(builder, typed, CopiesOf::trained);
  return is_kept ? remove_dead(std::move(graph)) : graph;
}

Graph update_from_accumulators(const Graph& typed, const ProgramOptions& options) {
  Graph graph;
  graph.phase = typed.phase;
  Builder builder(graph);
  std::vector<UpdateItem> items = update_items(typed, options);
  bool any_kept = false;
  for (UpdateItem& item : items) {
    TensorType gradient = typed.type(item.gradient);
    item.weight = builder.input(InputKind::parameter, item.parameter, typed.type(item.weight));
    const bool is_kept = is_kept_gradient(typed, item.gradient, options);
    if (is_kept) gradient.dtype = Dtype::fp16;
    item.gradient = builder.state(StateUse::accumulator, item.parameter, gradient);
    if (!is_kept) continue;
    any_kept = true;
    builder.tag = Tag{.layer = -1, .role = Role::update, .origin = item.parameter};
    item.gradient = value_of(builder, {item.gradient, accumulator_scale(builder, item.parameter)});
  }
  builder.tag = {};
  ValueId flag = kNoValue;
  if (const GraphOutput* output = typed.find_output(kQuantizerFlag); output != nullptr)
    flag = builder.state(StateUse::accumulated_flag, "", typed.type(output->value));
  for (const GraphOutput& output : typed.outputs) {
    const GraphInput* source = history_of(typed, output);
    if (source == nullptr) continue;
    const TensorType& type = typed.type(output.updates);
    const auto& [use, site] = source->key;
    const ValueId history = builder.state(use, site, type);
    builder.next(history, builder.state(accumulated(use), site, type));
  }
  for (const GraphOutput& output : typed.outputs) {
    if (!is_next_statistic(typed, output)) continue;
    const TensorType& type = typed.type(output.updates);
    const std::string& name = typed.input_of(output.updates)->name;
    const ValueId old = builder.input(InputKind::statistic, name, type);
    const ValueId total = builder.state(StateUse::accumulated_statistic, name, type);
    builder.next(old, builder.scaled(total, 1.0 / options.accumulate));
  }
  guarded_update(builder, items, options, flag);
  append_weight_copies(builder, typed, CopiesOf::trained);
  return any_kept ? remove_dead(std::move(graph)) : graph;
}

Graph derive_weights(const Graph& typed) {
  Graph graph;
  graph.phase = typed.phase;
  Builder builder(graph);
  append_weight_copies(builder, typed, CopiesOf::all);
  return graph;
}

Graph without_output(const Graph& graph, std::string_view name) {
  Graph result = graph;
  take_output(result, name);
  return result;
}

}  // namespace octet
