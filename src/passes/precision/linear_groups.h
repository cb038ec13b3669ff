// The linears of a graph's layers, in the groups that share scales: those of one layer that read
// the same x, and have the same formats.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "passes/precision/policy.h"

namespace octet {

enum class OperandKind : uint8_t { x, w, dy };
constexpr std::string_view operand_name(OperandKind kind) {
  constexpr std::string_view names[] = {"x", "w", "dy"};
  return names[static_cast<int>(kind)];
}

struct LinearGroup {
  std::string name;  // of its first member
  LinearFormats formats;
  std::vector<std::string> members;
  ValueId x = kNoValue;  // of the forward pass
  ValueIds weights, gradients;
  std::vector<NodeId> backward;  // the members' dgrad and wgrad nodes

  // What the forward GEMM reads, or those of the backward pass.
  const OperandFormat& format(OperandKind kind, GemmRole role) const {
    const auto of = [&](const OperandFormat& forward,
                        const std::optional<OperandFormat>& backward) -> const OperandFormat& {
      return role != GemmRole::forward && backward ? *backward : forward;
    };
    return kind == OperandKind::x   ? of(formats.x, formats.backward_x)
           : kind == OperandKind::w ? of(formats.w, formats.backward_w)
                                    : formats.dy;
  }
  // Of the weights' codes with one scale, if there are any.
  const OperandFormat& tensor_weight() const {
    return formats.backward_w ? *formats.backward_w : formats.w;
  }
  // Of a state of this operand's scale.
  std::string site(OperandKind kind) const { return name + "." + std::string(operand_name(kind)); }
};

// A parameter, or a weight that is frozen.
bool is_weight(const Graph& graph, ValueId id);
// Where a weight is kept in eight bits, as they are asked for: what makes it wide again; nullptr
// elsewhere.
const Node* stored_weight(const Graph& graph, ValueId id, Dtype dtype);

// The operand whose maximum the scale is made from: of an input that the backward pass makes again
// (store_groups.h), the forward pass's.
ValueId measured_operand(const Graph& graph, const LinearGroup& group, ValueId operand);

// The groups, and which one each gemm belongs to.
class LinearGroups {
 public:
  LinearGroups(const Graph& graph, const LinearFormats& formats,
               const std::vector<LinearOverride>& overrides);

  static const GemmAttrs& gemm(const Node& node) { return std::get<GemmAttrs>(node.attrs); }
  // nullptr for a node that is quantized in none.
  const LinearGroup* of(NodeId node) const {
    const int group = of_node_[static_cast<size_t>(node)];
    return group < 0 ? nullptr : &groups_[static_cast<size_t>(group)];
  }
  const std::vector<LinearGroup>& all() const { return groups_; }

 private:
  void add_backward(const Node& node, NodeId n, const std::pair<int, ValueId>& member);

  const Graph& graph_;
  std::vector<LinearGroup> groups_;
  std::vector<int> of_node_;
};

// Every backward GEMM of a group after the gradients of all its members.
Graph wait_for_group_gradients(const Graph& graph, const LinearGroups& groups);

}  // namespace octet
