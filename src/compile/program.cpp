#include "compile/program.h"

#include <algorithm>

#include "base/error.h"
#include "compile/expand_updates.h"
#include "compile/lower.h"
#include "passes/lower/fuse.h"
#include "passes/parallel/shard_updates.h"

namespace octet {
namespace {

// The inputs that keep their values between calls, as a graph of their own.
Graph lasting_inputs(const Graph& graph) {
  Graph kept;
  for (const GraphInput& input : graph.inputs) {
    if (!is_kept(input.kind)) continue;
    kept.inputs.push_back(input);
    kept.inputs.back().value = static_cast<ValueId>(kept.values.size());
    kept.values.push_back({.type = graph.type(input.value)});
  }
  return kept;
}

}  // namespace

Program::Program(ProgramOptions wanted, const Catalogue& catalogue,
                 const std::vector<FunctionKey>& more)
    : catalogue_(catalogue), typed_(std::move(wanted), catalogue) {
  layout_.rank = options().parallel.rank;
  layout_.saves_constants = !options().freeze.empty();
  // A model's outputs read all of its parameters, and an encoder without a loss has no evaluate.
  const bool has_outputs = !more.empty() && more.front().name == function::logits;
  if (!options().inference_only) {
    for (const FunctionKey& key : train_keys()) add_to_layout(key);
  } else if (!has_outputs) {
    add_to_layout({function::evaluate, options().train});
  }
  for (const FunctionKey& key : more) add_to_layout(key);
}

void Program::add_to_layout(const FunctionKey& key) {
  const auto [it, added] = composed_.try_emplace(key);
  if (!added) return;
  it->second = compose(key);
  layout_.add_inputs(lasting_inputs(it->second));
}

std::vector<std::string_view> Program::train_functions() const {
  if (options().accumulate == 1) return {function::step};
  return {function::micro_first, function::micro_next, function::update};
}

std::vector<FunctionKey> Program::train_keys() const {
  std::vector<FunctionKey> keys;
  for (const std::string_view name : train_functions()) keys.push_back({name, options().train});
  std::vector<BatchSize> others = options().batches;
  for (const int64_t seq : options().shorter) {
    CHECK(seq < options().train.seq);
    others.push_back(options().train);
    others.back().seq = seq;
  }
  for (const BatchSize& size : others) {
    for (const std::string_view name : train_functions()) {
      if (name != function::update) keys.push_back({name, size});
    }
  }
  if (!has_measuring_steps(options())) return keys;
  std::vector<FunctionKey> both = keys;
  for (FunctionKey& key : keys) {
    key.kind = StepKind::measuring;
    both.push_back(key);
  }
  return both;
}

std::vector<FunctionKey> Program::evaluate_keys() const {
  std::vector<FunctionKey> keys = {{function::evaluate, options().train}};
  for (const int64_t seq : options().shorter) {
    keys.push_back(keys.front());
    keys.back().size.seq = seq;
  }
  return keys;
}

std::vector<FunctionKey> Program::text_keys() const {
  std::vector<FunctionKey> keys;
  for (const int64_t seq : options().texts)
    keys.push_back({function::logits, {.batch = 1, .seq = seq}});
  return keys;
}

bool Program::has_derived() const {
  return std::any_of(layout_.slots.begin(), layout_.slots.end(),
                     [](const auto& slot) { return slot.second.kind == InputKind::derived; });
}

Graph Program::compose(const FunctionKey& key) {
  const FunctionDef& def = find_function(key.name);
  const Pass pass{.name = "compose", .run = [&](const Graph& typed) {
                    Graph graph = def.compose(typed, options(), key.size);
                    graph.name = key.kind == StepKind::plain
                                     ? std::string(def.name)
                                     : fmt::format("{}_{}", enum_name(key.kind), def.name);
                    return graph;
                  }};
  Graph graph = run_pass(pass, typed_.graph(def.source, key.size, key.kind), &typed_.log());
  const Pass sharding{.name = "parallelize", .run = [&](const Graph& whole) {
                        const Graph sharded = parallelize(whole, options().parallel);
                        const bool gathers = def.name == function::gather_weights;
                        return gathers ? gather_left(sharded, options().parallel) : sharded;
                      }};
  if (options().parallel.is_active()) graph = run_pass(sharding, graph, &typed_.log());
  const bool updates = std::ranges::any_of(
      graph.nodes, [](const Node& node) { return op_def(node.op).is_abstract; });
  const Pass expansion{.name = "expand_updates", .run = [&](const Graph& abstract) {
                         return expand_updates(abstract, options().optim);
                       }};
  return updates ? run_pass(expansion, graph, &typed_.log()) : graph;
}

const Plan& Program::plan(const FunctionKey& wanted) {
  FunctionKey key = wanted;
  key.name = find_function(wanted.name).name;
  auto& slot = plans_[key];
  const bool is_old = slot && slot->target != catalogue_.target().text();  // a row was struck
  if (!slot || is_old) slot = compile(key);
  return *slot;
}

std::unique_ptr<Plan> Program::compile(const FunctionKey& key) {
  const auto composed = composed_.find(key);
  const Graph typed = composed == composed_.end() ? compose(key) : std::move(composed->second);
  if (composed != composed_.end()) composed_.erase(composed);
  FuseReport report;
  const auto takes = [&](const Graph& graph, const Node& form) {
    return catalogue_.takes_form(graph, form);
  };
  const Pass pass{.name = "fuse",
                  .run = [&](const Graph& graph) { return fuse(graph, &report, takes); }};
  const Graph fused = run_pass(pass, typed, &typed_.log());
  const Pass lowering{.name = "lower",
                      .run = [&](const Graph& graph) { return lower(graph, catalogue_); }};
  const Graph graph = run_pass(lowering, fused, &typed_.log());
  if (options().strict_fusion && !report.near_misses.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "[fuse] recipe.strict_fusion: {} did not fire in {}, the first: {}",
                report.near_misses.size(), key.name, report.near_misses.front());
  }
  Layout layout = layout_;
  layout.add_inputs(graph);
  auto plan = std::make_unique<Plan>(make_plan(graph, layout, catalogue_));
  plan->near_misses = std::move(report.near_misses);
  return plan;
}

int64_t Program::planned_bytes() {
  for (const FunctionKey& key : train_keys()) {
    const bool is_batch = std::ranges::count(options().batches, key.size) > 0;
    if (is_batch || key.size == options().train) plan(key);
  }
  if (has_derived()) plan(function::prepare_state);
  plan(function::evaluate);
  if (const auto texts = text_keys(); !texts.empty()) plan(texts.back());
  int64_t bytes[kArenaCount];
  arena_bytes(bytes);
  return bytes[0] + bytes[1] + bytes[2];
}

void Program::arena_bytes(int64_t (&bytes)[kArenaCount]) const {
  for (int arena = 0; arena < kArenaCount; ++arena) bytes[arena] = layout_.arena_bytes[arena];
  for (const auto& [key, plan] : plans_) {
    for (int arena = 0; arena < kArenaCount; ++arena)
      bytes[arena] = std::max(bytes[arena], plan->arena_bytes[arena]);
  }
}

}  // namespace octet
