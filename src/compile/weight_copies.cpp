#include "compile/weight_copies.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "passes/rewrite/simplify.h"

namespace octet {
namespace {

bool is_copy(const Graph& graph, const GraphOutput& output) {
  const GraphInput* input = output.updates == kNoValue ? nullptr : graph.input_of(output.updates);
  return input != nullptr && input->kind == InputKind::derived;
}

// Which values depend on a parameter.
ById<bool> trained_values(const Graph& graph) {
  ById<bool> trained(graph.values.size(), false);
  const auto is_trained = [&](ValueId id) { return id != kNoValue && trained[id]; };
  for (const GraphInput& input : graph.inputs)
    trained[input.value] = input.kind == InputKind::parameter;
  for (const Node& node : graph.nodes) {
    const bool any = std::ranges::any_of(node.operands, is_trained);
    for (const ValueId id : node.results) {
      if (id != kNoValue) trained[id] = any;
    }
  }
  return trained;
}

std::vector<GraphOutput> copies_of(const Graph& graph, CopiesOf which) {
  const ById<bool> trained = trained_values(graph);
  std::vector<GraphOutput> copies;
  for (const GraphOutput& output : graph.outputs) {
    const bool is_wanted = which == CopiesOf::all || trained[output.value];
    if (is_copy(graph, output) && is_wanted) copies.push_back(output);
  }
  return copies;
}

// The nodes that the outputs of copies depend on.
ById<bool> copy_nodes(const Graph& graph, const std::vector<GraphOutput>& copies) {
  ById<bool> wanted(graph.values.size(), false), nodes(graph.nodes.size(), false);
  for (const GraphOutput& output : copies) wanted[output.value] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    for (const ValueId id : graph.nodes[n].results)
      nodes[n] = nodes[n] || (id != kNoValue && wanted[id]);
    if (!nodes[n]) continue;
    for (const ValueId id : graph.nodes[n].operands) {
      if (id != kNoValue) wanted[id] = true;
    }
  }
  return nodes;
}

class Copier {
 public:
  Copier(Builder& builder, const Graph& typed)
      : builder_(builder), typed_(typed), map_(typed.values.size(), kNoValue) {
    for (const GraphInput& input : builder.graph().inputs) inputs_[input.name] = input.value;
    for (const GraphOutput& output : builder.graph().outputs)
      next_.try_emplace(output.updates, output.value);
  }

  void run(CopiesOf which) {
    const std::vector<GraphOutput> copies = copies_of(typed_, which);
    const ById<bool> nodes = copy_nodes(typed_, copies);
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (nodes[n]) append(typed_.nodes[n]);
    }
    for (const GraphOutput& output : copies) {
      const ValueId aliased_input = input(*typed_.input_of(output.updates));
      const ValueId next = value(output.value);
      builder_.output(output.name, next, aliased_input);
      next_.try_emplace(aliased_input, next);
    }
  }

 private:
  void append(const Node& node) {
    ValueIds operands;
    for (const ValueId id : node.operands) operands.push_back(value(id));
    builder_.tag = node.tag;
    builder_.tag.role = Role::update;
    const auto results =
        builder_.emit_typed(node.op, node.attrs, operands, result_types(typed_, node));
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] != kNoValue) map_[node.results[i]] = results[i];
    }
  }

  ValueId value(ValueId id) {
    if (id == kNoValue) return kNoValue;
    ValueId& mapped = map_[id];
    if (mapped != kNoValue) return mapped;
    const GraphInput* source = typed_.input_of(id);
    CHECK(source != nullptr);
    const ValueId now = input(*source);
    const auto next = next_.find(now);
    return mapped = next == next_.end() ? now : next->second;
  }

  ValueId input(const GraphInput& source) {
    const auto [it, is_new] = inputs_.try_emplace(source.name);
    if (is_new) it->second = builder_.input(source.kind, source.name, typed_.type(source.value));
    return it->second;
  }

  Builder& builder_;
  const Graph& typed_;
  ById<ValueId> map_;  // value of typed -> value of the builder's graph
  std::unordered_map<std::string, ValueId> inputs_;  // of the builder's graph, by name
  std::unordered_map<ValueId, ValueId> next_;        // input -> what updates it
};

}  // namespace

Graph without_weight_copies(const Graph& typed) {
  Graph rest = typed;
  std::erase_if(rest.outputs, [&](const GraphOutput& output) { return is_copy(typed, output); });
  return rest.outputs.size() == typed.outputs.size() ? typed : remove_dead(rest);
}

void append_weight_copies(Builder& builder, const Graph& typed, CopiesOf which) {
  Copier(builder, typed).run(which);
}

}  // namespace octet
