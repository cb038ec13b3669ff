// The graph: nodes and values in flat arrays, SSA, topological order, static shapes, no control
// flow.
//
// A value is an input of the graph or a result of one node. Node i reads only inputs and results of
// nodes before i. Indices, not pointers: a pass rebuilds the graph and never edits one in place.
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/attrs.h"
#include "ir/states.h"
#include "ir/types.h"

namespace octet {

using ValueId = int32_t;
using ValueIds = std::vector<ValueId>;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kNoNode = -1;

// A vector that is indexed by ids of values or nodes, or by other signed numbers.
template <typename T>
class ById : public std::vector<T> {
 public:
  using std::vector<T>::vector;
  ById(std::vector<T> all) : std::vector<T>(std::move(all)) {}
  decltype(auto) operator[](std::integral auto id) {
    return std::vector<T>::operator[](static_cast<size_t>(id));
  }
  decltype(auto) operator[](std::integral auto id) const {
    return std::vector<T>::operator[](static_cast<size_t>(id));
  }
};

enum class Phase : uint8_t { logical, typed, sharded, lowered };
enum class Role : uint8_t { forward, backward, update };

constexpr auto value_names(Phase) {
  return name_list("logical", "typed", "sharded", "lowered");
}
constexpr auto value_names(Role) {
  return name_list("forward", "backward", "update");
}

// Origin of a node: used by policies and reports, never by kernels.
struct Tag {
  int layer = -1;  // counted through all stacks of layers, -1 outside of them
  Role role = Role::forward;
  std::string origin = {};      // name of the module, "q_proj" for example
  std::string layer_name = {};  // "encoder.layers.3" of one stack of several; else empty
  bool operator==(const Tag&) const = default;
};
// "layers.3", or the layer's own name.
std::string layer_name(const Tag& tag);
// For messages: "layer 3", or the layer's own name; empty outside of the layers.
std::string layer_text(const Tag& tag);

struct Value {
  TensorType type;
  NodeId producer = kNoNode;  // kNoNode: an input of the graph
  int result_index = 0;       // its slot among the producer's results
  bool operator==(const Value&) const = default;
};

struct Node {
  OpCode op = OpCode::neg;
  Attrs attrs;
  // By slot (ir/ops/slots.h); kNoValue: an optional one that is absent. None at the end is.
  ValueIds operands, results;
  Tag tag;
  bool operator==(const Node&) const = default;

  // kNoValue where it is absent.
  ValueId in(size_t slot) const { return slot < operands.size() ? operands[slot] : kNoValue; }
  ValueId out(size_t slot) const { return slot < results.size() ? results[slot] : kNoValue; }
};

// Which of a linear's three GEMMs the node is; `other` where it is none.
inline GemmRole linear_role(const Node& node) {
  const auto* gemm = std::get_if<GemmAttrs>(&node.attrs);
  return gemm == nullptr ? GemmRole::other : gemm->role;
}

// Inputs stand in the order of their values. `key`: what a state is for and of which parameter or
// quantizer site; the name follows from it (ir/states.h). `whole`: the shape of the tensor that it
// is one rank's shard of (ir/sharding.h); nothing where it is all of it.
struct GraphInput {
  ValueId value = kNoValue;
  InputKind kind = InputKind::batch;
  std::string name;
  StateKey key = {};
  std::optional<Shape> whole = {};
  bool operator==(const GraphInput&) const = default;
};

// With the key that its name says.
GraphInput graph_input(ValueId value, InputKind kind, std::string name, Dtype dtype);

// A named result. With `updates` it is written over that input's buffer (parameter, state,
// derived): the input's next value.
struct GraphOutput {
  std::string name;
  ValueId value = kNoValue;
  ValueId updates = kNoValue;
  bool operator==(const GraphOutput&) const = default;
};

struct Graph {
  std::string name = "graph";
  Phase phase = Phase::logical;
  ById<Value> values;
  std::vector<GraphInput> inputs;
  ById<Node> nodes;
  std::vector<GraphOutput> outputs;

  const Value& value(ValueId id) const { return values[id]; }
  Value& value(ValueId id) { return values[id]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  const Node& node(NodeId id) const { return nodes[id]; }
  Node& node(NodeId id) { return nodes[id]; }
  NodeId id(const Node& node) const { return static_cast<NodeId>(&node - nodes.data()); }
  // The node that gives a value; nullptr of an input and of kNoValue.
  const Node* producer(ValueId id) const;
  // The same where it is of this op, else nullptr.
  const Node* producer(ValueId id, OpCode op) const;
  const GraphInput* find_input(std::string_view name) const;
  const GraphInput* input_of(ValueId id) const;  // nullptr where a node produced it
  const GraphOutput* find_output(std::string_view name) const;
  bool operator==(const Graph&) const = default;
};

// For each value, the nodes that read it, in order; a node that reads it twice stands twice.
ById<std::vector<NodeId>> uses(const Graph& graph);
// True if the output is the next value of a statistic of the batches.
bool is_next_statistic(const Graph& graph, const GraphOutput& output);
// The number that each element of the value is, where a `fill` makes it.
std::optional<double> filled_with(const Graph& graph, ValueId id);
// Types of results as their node says them, by slot; f32 for an absent one.
ResultTypes result_types(const Graph& graph, std::span<const ValueId> results);
inline ResultTypes result_types(const Graph& graph, const Node& node) {
  return result_types(graph, node.results);
}
// Without the absent ones at the end, as a node keeps them.
ValueIds trimmed(ValueIds slots);

}  // namespace octet
