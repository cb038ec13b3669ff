// Who shares a scale: the linears of a graph's layers, and others that overrides name, in groups,
// those of one layer that read the same x and have the same formats. A group has one scale for its
// weights and one for its output gradients (the maximum over the members; its backward GEMMs wait
// until every member's gradient is there). x has its own.
// A linear that the graph runs more than once (ir/linear_use.h) is in a group for each use: inputs
// and gradients of a use have scales of their own, since the gradient of a step of a recurrence
// follows from that of the next. Groups that read the same weight have one scale of weights.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/slots.h"
#include "passes/precision/policy.h"

namespace octet {

enum class OperandKind : uint8_t { x, w, dy };
constexpr auto value_names(OperandKind) {
  return name_list("x", "w", "dy");
}

struct LinearGroup {
  std::string name;  // of its first member
  LinearFormats formats;
  std::vector<std::string> members;
  ValueId x = kNoValue;  // of the forward pass
  ValueIds weights, gradients;
  // The group whose scale of weights this one reads, where others read its weights, too; itself
  // elsewhere. Of that one: the weights and members of all that read it.
  LinearGroup* of_scale = nullptr;
  ValueIds scaled_weights = {};
  std::vector<std::string> scaled_members = {};
  std::vector<NodeId> backward;  // the members' dgrad and wgrad nodes
  bool is_depthwise = false;     // a depthwise convolution, in a group of its own

  // Format that the forward GEMM reads, or that of the backward pass.
  const OperandFormat& format(OperandKind kind, GemmRole role) const {
    const auto of = [&](const OperandFormat& forward,
                        const std::optional<OperandFormat>& backward) -> const OperandFormat& {
      return role != GemmRole::forward && backward ? *backward : forward;
    };
    return kind == OperandKind::x   ? of(formats.x, formats.backward_x)
           : kind == OperandKind::w ? of(formats.w, formats.backward_w)
                                    : formats.dy;
  }
  // Format of the weights' codes with one scale, if there are any.
  const OperandFormat& tensor_weight() const {
    return formats.backward_w ? *formats.backward_w : formats.w;
  }
};

// An operand of a linear's GEMM.
struct LinearOperand {
  const LinearGroup& group;
  ValueId value;
  OperandKind kind;
  GemmRole role;
  int axis;  // of the operand, which the GEMM reduces
  const OperandFormat& format() const { return group.format(kind, role); }
  // Of a state of its scale.
  std::string site() const {
    const LinearGroup& owner = kind == OperandKind::w ? *group.of_scale : group;
    return owner.name + "." + std::string(enum_name(kind));
  }
};

// Sharers of an operand's scale: the values whose maximum it is made from, and one that stands for
// them: the same for all operands of this kind that share the scale, and for no other.
struct ScaleSharers {
  ValueIds values;
  ValueId key;
};

// A parameter, or a weight that is frozen.
bool is_weight(const Graph& graph, ValueId id);
// Node that dequantizes a weight that is kept in eight bits, as they are asked for; nullptr
// elsewhere.
const Node* stored_weight(const Graph& graph, ValueId id, Dtype dtype);

// The value whose maximum is taken: of an input that the backward pass makes again
// (store_groups.h), the forward pass's.
ValueId measured_value(const Graph& graph, const LinearOperand& operand);

// The linear that makes a text's logits, whether its weight is the embedding's or not.
inline constexpr std::string_view kTextHead = "lm_head";
// Module of a linear in no layer (a vision transformer's patches, a classifier), as
// "vit.embeddings.patch_embeddings.projection"; of the head of a text kTextHead. Empty of other
// nodes.
std::string outer_linear(const Graph& graph, const Node& node);
// True if an override's pattern means it: without '*' its module, or the end of that behind a dot.
bool names_outer_linear(std::string_view pattern, std::string_view module);
// True if overrides make a recipe of these formats quantize the head of a text.
bool quantizes_text_head(const LinearFormats& base, const std::vector<LinearOverride>& overrides);
// Of a linear's GEMMs, forward and backward: the name of a layer's linear, or the outer one's own,
// and of each of several uses its own.
std::string member_name(const Node& node);
// The formats of a forward GEMM after the overrides that mean it; nothing where it is quantized in
// no case: outside of the layers what none names, so that "*" stays a pattern of layers.
std::optional<LinearFormats> formats_of(const Graph& graph, const Node& node,
                                        const LinearFormats& base,
                                        const std::vector<LinearOverride>& overrides,
                                        BlockScale block_scale = BlockScale::max);

// Role of a depthwise convolution of a layer, which recipes quantize as they do linears, or of its
// gradients; `other` of other nodes.
GemmRole depthwise_role(const Node& node);

// Depthwise convolutions are among them, or not.
enum class Depthwise : uint8_t { left_out, grouped };

// The groups, and which one each gemm, or depthwise convolution, belongs to.
class LinearGroups {
 public:
  LinearGroups(const Graph& graph, const LinearFormats& formats,
               const std::vector<LinearOverride>& overrides, BlockScale block_scale,
               Depthwise depthwise = Depthwise::grouped);

  LinearGroups(LinearGroups&&) = default;

  static const GemmAttrs& gemm(const Node& node) { return std::get<GemmAttrs>(node.attrs); }
  // nullptr for a node that is quantized in none.
  const LinearGroup* of(NodeId node) const { return of_node_[node]; }
  const std::deque<LinearGroup>& all() const { return groups_; }
  bool has_backward() const;
  // Operand that a depthwise convolution of the group reads at `factor`, Binary::a or Binary::b.
  static LinearOperand depthwise_operand(const LinearGroup& group, const Node& node, SlotId factor);
  // Operand that a node of the group reads at `factor`, Gemm::a or Gemm::b.
  LinearOperand operand(const LinearGroup& group, const Node& node, SlotId factor) const;
  ScaleSharers sharers(const LinearOperand& operand) const;
  // Sums of a node of a group, as overrides say them.
  std::optional<GemmSums> sums(const Node& node) const;

 private:
  void add_linear(const Node& node, const LinearFormats& formats,
                  const std::vector<LinearOverride>& overrides, BlockScale block_scale);
  void add_backward(const Node& node, LinearGroup& group);
  void add_depthwise(const Node& node, const LinearFormats& formats,
                     const std::vector<LinearOverride>& overrides, BlockScale block_scale);
  void share_weights();

  const Graph& graph_;
  std::map<std::pair<int, ValueId>, LinearGroup*> by_x_;
  std::map<std::string, LinearGroup*> by_name_;
  std::deque<LinearGroup> groups_;
  std::map<std::string, GemmSums> sums_;  // by member
  ById<LinearGroup*> of_node_;
};

// Every backward GEMM of a group after the gradients of all its members.
Graph wait_for_group_gradients(const Graph& graph, const LinearGroups& groups);

}  // namespace octet
