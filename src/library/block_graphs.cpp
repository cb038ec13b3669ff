#include "library/block_graphs.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "compile/compose.h"
#include "compile/lower.h"
#include "ir/builder.h"
#include "ir/ops/common.h"
#include "ir/verify.h"
#include "passes/autodiff.h"
#include "passes/driver.h"
#include "passes/lower/fuse.h"
#include "passes/memory/recompute.h"
#include "passes/precision/recipe.h"
#include "passes/rewrite/rewrite.h"
#include "passes/rewrite/simplify.h"
#include "plan/views.h"

namespace octet {
namespace {

constexpr std::string_view kLoss = "loss";

void check(const BlockSource& source) {
  for (const std::string& name : source.wanted) {
    if (source.graph.find_input(name) == nullptr)
      throw Error(ErrorCode::invalid_argument, "[block] wanted: '{}' is no input", name);
  }
  for (const std::string& name : source.hidden) {
    if (source.graph.find_output(name) == nullptr)
      throw Error(ErrorCode::invalid_argument, "[block] hidden: '{}' is no output", name);
  }
}

// The sum over outputs of y * dy, whose gradients are those that the backward pass is asked for.
Graph with_loss(const Graph& source) {
  Graph graph = source;
  Builder b(graph);
  ValueId loss = kNoValue;
  for (const GraphOutput& output : source.outputs) {
    const size_t rank = graph.type(output.value).shape.size();
    const ValueId dy = b.input(InputKind::batch, fmt::format("{}{}", kOutputGradient, output.name),
                               graph.type(output.value));
    const ValueId term = b.reduce_sum(b.mul(output.value, dy), ops::iota_axes(rank));
    loss = loss == kNoValue ? term : b.add(loss, term);
  }
  b.output(std::string(kLoss), loss);
  return graph;
}

// Inputs that the builder added behind nodes, moved before them.
Graph with_inputs_first(const Graph& graph) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) rewriter.copy(node);
  return rewriter.finish();
}

// dy for the gradient of y * dy: what is multiplied by a broadcast 1.
Graph without_seeds(const Graph& graph) {
  Rewriter rewriter(graph);
  const auto is_one = [&](ValueId id) {
    const Node* node = graph.producer(id, OpCode::broadcast);
    return node != nullptr && filled_with(graph, node->in(Unary::x)) == 1.0;
  };
  for (const Node& node : graph.nodes) {
    const bool is_seeded = node.op == OpCode::mul && node.tag.role == Role::backward;
    if (is_seeded && is_one(node.in(Binary::a))) {
      rewriter.set(node.out(Binary::y), rewriter.map(node.in(Binary::b)));
    } else {
      rewriter.copy(node);
    }
  }
  return simplify(rewriter.finish());
}

Graph differentiated(const BlockSource& source) {
  if (source.wanted.empty()) return simplify(source.graph);
  Graph graph =
      autodiff(with_inputs_first(with_loss(source.graph)), {.with_respect_to = source.wanted});
  graph = without_output(graph, kLoss);
  for (const std::string& name : source.hidden) graph = without_output(graph, name);
  return without_seeds(simplify(graph));
}

// The one flag of a step as one of each pass. Behind fusion, which moves quantizers.
Graph with_flags(Graph graph) {
  const GraphOutput* output = graph.find_output(kQuantizerFlag);
  if (output == nullptr) return graph;
  const Node any = *graph.producer(output->value, OpCode::any_of);
  graph = without_output(graph, kQuantizerFlag);
  Builder b(graph);
  const auto add = [&](bool is_forward, std::string_view name) {
    ValueIds flags;
    std::ranges::copy_if(any.operands, std::back_inserter(flags), [&](ValueId id) {
      return (graph.producer(id)->tag.role == Role::forward) == is_forward;
    });
    const Role role = is_forward ? Role::forward : Role::backward;
    b.tag = Tag{.layer = -1, .role = role, .origin = std::string(kQuantizerFlag)};
    if (!flags.empty()) b.output(std::string(name), b.emit1(OpCode::any_of, NoAttrs{}, flags));
  };
  add(true, kForwardFlag);
  add(false, kBackwardFlag);
  return remove_dead(graph);
}

Graph lowered(const BlockSource& source, const Catalogue& catalogue) {
  const Recipe recipe = find_recipe(source.recipe);
  RecipeOptions options{.weight_copy = WeightCopy::per_use};
  options.k_major = catalogue.target().k_major;
  const RecomputeOptions again{.what = recipe.recompute};
  const auto takes = [&](const Graph& graph, const Node& form) {
    return catalogue.takes_form(graph, form);
  };
  const std::vector<Pass> passes = {
      {.name = recipe.name,
       .run = [&](const Graph& graph) { return recipe.apply(recipe, graph, options); }},
      {.name = "recompute", .run = [&](const Graph& graph) { return recompute(graph, again); }},
      {.name = "fuse", .run = [&](const Graph& graph) { return fuse(graph, nullptr, takes); }},
      {.name = "lower", .run = [&](const Graph& graph) { return lower(graph, catalogue); }},
      {.name = "flags", .run = with_flags}};
  Graph graph = run_passes(differentiated(source), passes);
  for (const GraphInput& input : graph.inputs) {
    if (input.kind == InputKind::state || input.kind == InputKind::derived)
      throw Error(ErrorCode::invalid_argument,
                  "[block] recipe: expected one that keeps no state between steps, got '{}', which "
                  "keeps '{}'",
                  source.recipe, input.name);
  }
  return graph;
}

// A pass of the two: its nodes, in order, over inputs of the graph and values of the other pass.
class Part {
 public:
  Part(const Graph& from, std::string_view name, std::vector<const Node*> nodes)
      : from_(from), nodes_(std::move(nodes)) {
    part_.name = name, part_.phase = from.phase;
    for (const Node* node : nodes_) {
      for (const ValueId id : node->results) made_.insert(id);
    }
  }

  bool makes(ValueId id) const { return made_.contains(id); }
  // Values that it reads and does not make, in order; `outputs` too.
  ValueIds missing(const std::vector<GraphOutput>& outputs) const {
    std::set<ValueId> ids;
    const auto add = [&](ValueId id) {
      if (id != kNoValue && !makes(id)) ids.insert(id);
    };
    for (const Node* node : nodes_) std::ranges::for_each(node->operands, add);
    for (const GraphOutput& output : outputs) add(output.value);
    return {ids.begin(), ids.end()};
  }

  void input(ValueId id, InputKind kind, const std::string& name) {
    map_[id] = Builder(part_).input(kind, name, from_.type(id));
  }
  Graph build(const std::vector<GraphOutput>& outputs) {
    Builder b(part_);
    for (const Node* node : nodes_) {
      b.tag = node->tag;
      ValueIds operands;
      for (const ValueId id : node->operands) operands.push_back(mapped(id));
      const ValueIds results =
          b.emit_typed(node->op, node->attrs, operands, result_types(from_, *node));
      for (size_t i = 0; i < node->results.size(); ++i) {
        if (node->results[i] != kNoValue) map_[node->results[i]] = results[i];
      }
    }
    for (const GraphOutput& output : outputs) b.output(output.name, mapped(output.value));
    Graph part = remove_dead(std::move(part_));
    verify(part);
    return part;
  }

 private:
  ValueId mapped(ValueId id) const { return id == kNoValue ? kNoValue : map_.at(id); }

  const Graph& from_;
  Graph part_;
  std::vector<const Node*> nodes_;
  std::set<ValueId> made_;
  std::map<ValueId, ValueId> map_;
};

class Splitter {
 public:
  explicit Splitter(const Graph& graph) : graph_(graph) {}

  BlockGraphs run() {
    std::vector<const Node*> forward, backward;
    for (const Node& node : graph_.nodes)
      (node.tag.role == Role::forward ? forward : backward).push_back(&node);
    std::vector<GraphOutput> given, gradients;
    for (const GraphOutput& output : graph_.outputs) {
      const bool is_backward = is_gradient_name(output.name) || output.name == kBackwardFlag;
      (is_backward ? gradients : given).push_back(output);
    }
    // Constants and views of what is kept are made again.
    for (bool grows = true; grows;) {
      grows = false;
      for (const ValueId id : Part(graph_, "", backward).missing(gradients)) {
        const Node* node = graph_.producer(id);
        if (node == nullptr || !(node->operands.empty() || is_view(graph_, *node))) continue;
        backward.insert(backward.begin(), node);
        grows = true;
      }
    }
    std::ranges::sort(backward);  // by address: in the graph's order
    Part second(graph_, "backward", backward);
    for (const ValueId id : second.missing(gradients)) {
      const GraphInput* input = graph_.input_of(id);
      const std::string name = input != nullptr ? input->name : kept_name(id);
      second.input(id, input != nullptr ? input->kind : InputKind::batch, name);
      if (input == nullptr) given.push_back({.name = name, .value = id});
    }
    return {first(forward, given), second.build(gradients)};
  }

 private:
  Graph first(const std::vector<const Node*>& nodes,
              const std::vector<GraphOutput>& outputs) const {
    Part part(graph_, "forward", nodes);
    for (const ValueId id : part.missing(outputs)) {
      const GraphInput* input = graph_.input_of(id);
      CHECK(input != nullptr);  // no node of the forward pass waits for a backward one
      part.input(id, input->kind, input->name);
    }
    return part.build(outputs);
  }

  std::string kept_name(ValueId id) {
    return fmt::format("{}{}.{}", kKept, n_kept_++, graph_.producer(id)->tag.origin);
  }

  const Graph& graph_;
  int n_kept_ = 0;
};

}  // namespace

BlockGraphs block_graphs(const BlockSource& source, const Catalogue& catalogue) {
  check(source);
  return Splitter(lowered(source, catalogue)).run();
}

}  // namespace octet
