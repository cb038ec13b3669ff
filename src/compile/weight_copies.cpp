#include "compile/weight_copies.h"

#include <algorithm>

#include "base/error.h"
#include "passes/simplify.h"

namespace octet {
namespace {

bool is_copy(const Graph& graph, const GraphOutput& output) {
  const GraphInput* input = output.updates == kNoValue ? nullptr : graph.input_of(output.updates);
  return input != nullptr && input->kind == InputKind::derived;
}

// Which values depend on a parameter.
std::vector<bool> trained_values(const Graph& graph) {
  std::vector<bool> trained(graph.values.size(), false);
  const auto is_trained = [&](ValueId id) {
    return id != kNoValue && trained[static_cast<size_t>(id)];
  };
  for (const GraphInput& input : graph.inputs)
    trained[static_cast<size_t>(input.value)] = input.kind == InputKind::parameter;
  for (const Node& node : graph.nodes) {
    const bool any = std::ranges::any_of(node.operands, is_trained);
    for (const ValueId id : node.results) {
      if (id != kNoValue) trained[static_cast<size_t>(id)] = any;
    }
  }
  return trained;
}

std::vector<GraphOutput> copies_of(const Graph& graph, CopiesOf which) {
  const std::vector<bool> trained = trained_values(graph);
  std::vector<GraphOutput> copies;
  for (const GraphOutput& output : graph.outputs) {
    const bool is_wanted = which == CopiesOf::all || trained[static_cast<size_t>(output.value)];
    if (is_copy(graph, output) && is_wanted) copies.push_back(output);
  }
  return copies;
}

// The nodes that the outputs of copies depend on.
std::vector<bool> copy_nodes(const Graph& graph, const std::vector<GraphOutput>& copies) {
  std::vector<bool> wanted(graph.values.size(), false), nodes(graph.nodes.size(), false);
  for (const GraphOutput& output : copies) wanted[static_cast<size_t>(output.value)] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    for (const ValueId id : graph.nodes[n].results)
      nodes[n] = nodes[n] || (id != kNoValue && wanted[static_cast<size_t>(id)]);
    if (!nodes[n]) continue;
    for (const ValueId id : graph.nodes[n].operands) {
      if (id != kNoValue) wanted[static_cast<size_t>(id)] = true;
    }
  }
  return nodes;
}

class Copier {
 public:
  Copier(Builder& builder, const Graph& typed)
      : builder_(builder), typed_(typed), map_(typed.values.size(), kNoValue) {}

  void run(CopiesOf which) {
    const std::vector<GraphOutput> copies = copies_of(typed_, which);
    const std::vector<bool> nodes = copy_nodes(typed_, copies);
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (nodes[n]) append(typed_.nodes[n]);
    }
    for (const GraphOutput& output : copies) {
      const ValueId home = input(*typed_.input_of(output.updates));
      builder_.output(output.name, value(output.value), home);
    }
  }

 private:
  void append(const Node& node) {
    std::vector<ValueId> operands;
    for (const ValueId id : node.operands) operands.push_back(value(id));
    builder_.tag = Tag{.layer = node.tag.layer, .role = Role::update, .origin = node.tag.origin};
    const auto results =
        builder_.emit_typed(node.op, node.attrs, operands, result_dtypes(typed_, node));
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] != kNoValue) map_[static_cast<size_t>(node.results[i])] = results[i];
    }
  }

  ValueId value(ValueId id) {
    if (id == kNoValue) return kNoValue;
    ValueId& mapped = map_[static_cast<size_t>(id)];
    if (mapped != kNoValue) return mapped;
    const GraphInput* source = typed_.input_of(id);
    CHECK(source != nullptr);
    const ValueId now = input(*source);
    const auto& outputs = builder_.graph().outputs;
    const auto next = std::find_if(outputs.begin(), outputs.end(),
                                   [&](const GraphOutput& o) { return o.updates == now; });
    return mapped = next == outputs.end() ? now : next->value;
  }

  ValueId input(const GraphInput& source) {
    const GraphInput* known = builder_.graph().find_input(source.name);
    return known != nullptr ? known->value
                            : builder_.input(source.kind, source.name, typed_.type(source.value));
  }

  Builder& builder_;
  const Graph& typed_;
  std::vector<ValueId> map_;  // value of typed -> value of the builder's graph
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
