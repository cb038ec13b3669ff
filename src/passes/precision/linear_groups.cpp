#include "passes/precision/linear_groups.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/error.h"
#include "ir/linear_use.h"
#include "ir/op_def.h"
#include "passes/precision/store_frozen.h"
#include "passes/precision/store_groups.h"
#include "passes/rewrite/reorder.h"

namespace octet {
namespace {

// Each reader of a frozen weight in eight bits has a value of its own.
bool is_same_weight(const Graph& graph, ValueId a, ValueId b) {
  const GraphInput* frozen = frozen_weight(graph, a);
  return a == b || (frozen != nullptr && frozen == frozen_weight(graph, b));
}

const Node* dequantize_of(const Graph& graph, ValueId id) {
  return frozen_weight(graph, id) == nullptr ? nullptr : graph.producer(id);
}

// Of a weight that two groups read: its codes and its scale are those of both.
void expect_same_format(const Graph& graph, ValueId weight, const LinearGroup& known,
                        const LinearGroup& other) {
  const auto weights_of = [](const LinearGroup& group) {
    return std::pair(group.formats.w, group.formats.backward_w);
  };
  if (weights_of(known) == weights_of(other)) return;
  const GraphInput* input = graph.input_of(weight);
  throw Error(ErrorCode::invalid_argument,
              "recipe.override: expected one format of weight {} for {} and {}, which both read it,"
              " got {} and {}",
              input == nullptr ? "" : input->name, known.name, other.name,
              operand_format_name(known.formats.w), operand_format_name(other.formats.w));
}

template <typename T>
void append_new(std::vector<T>& to, const std::vector<T>& values) {
  for (const T& value : values)
    if (std::ranges::find(to, value) == to.end()) to.push_back(value);
}

}  // namespace

GemmRole depthwise_role(const Node& node) {
  if (node.op != OpCode::depthwise || node.tag.layer < 0) return GemmRole::other;
  return std::get<ConvolutionAttrs>(node.attrs).role;
}

std::string member_name(const Node& node) {
  if (!is_layer_gemm(node)) return node.tag.origin;
  return layer_name(node.tag) + "." + node.tag.origin;
}

bool is_weight(const Graph& graph, ValueId id) {
  const GraphInput* input = graph.input_of(id);
  return (input != nullptr && input->kind == InputKind::parameter) || frozen_weight(graph, id);
}

const Node* stored_weight(const Graph& graph, ValueId id, Dtype dtype) {
  const Node* dequantize = dequantize_of(graph, id);
  const bool fits = dequantize != nullptr &&
                    graph.type(dequantize->in(Dequantize::q)).has(Granularity::Kind::tensor) &&
                    graph.type(dequantize->in(Dequantize::q)).dtype == dtype;
  return fits ? dequantize : nullptr;
}

ValueId measured_value(const Graph& graph, const LinearOperand& operand) {
  return is_repeated_layer(graph, operand.value) ? operand.group.x : operand.value;
}

std::string outer_linear(const Graph& graph, const Node& node) {
  if (node.tag.layer >= 0 || linear_role(node) != GemmRole::forward) return "";
  const ValueId weight = node.in(Gemm::b);
  if (!is_weight(graph, weight)) return "";
  if (node.tag.origin == kTextHead) return std::string(kTextHead);
  const std::string& name = graph.input_of(weight)->name;
  return name.substr(0, name.rfind('.'));
}

bool quantizes_text_head(const LinearFormats& base, const std::vector<LinearOverride>& overrides) {
  std::vector<LinearOverride> meant;
  std::ranges::copy_if(overrides, std::back_inserter(meant), [](const LinearOverride& o) {
    return names_outer_linear(o.pattern, kTextHead);
  });
  return !meant.empty() && apply_overrides(base, meant).quantized;
}

bool names_outer_linear(std::string_view pattern, std::string_view module) {
  if (module.empty() || pattern.empty() || pattern.find('*') != std::string_view::npos)
    return false;
  return module == pattern || module.ends_with("." + std::string(pattern));
}

namespace {

// The overrides that mean a forward GEMM.
std::vector<LinearOverride> meant_overrides(const Graph& graph, const Node& node,
                                            const std::vector<LinearOverride>& overrides) {
  std::vector<LinearOverride> meant;
  const bool is_in_layer = node.tag.layer >= 0;
  const std::string name = is_in_layer ? linear_name(node) : outer_linear(graph, node);
  std::ranges::copy_if(overrides, std::back_inserter(meant), [&](const LinearOverride& o) {
    return is_in_layer ? matches_pattern(o.pattern, name) : names_outer_linear(o.pattern, name);
  });
  return meant;
}

// Sums by the last override that means the forward GEMM and says them.
std::optional<GemmSums> sums_of(const Graph& graph, const Node& node,
                                const std::vector<LinearOverride>& overrides) {
  std::optional<GemmSums> sums;
  for (const LinearOverride& o : meant_overrides(graph, node, overrides))
    if (o.sums) sums = o.sums;
  return sums;
}

}  // namespace

std::optional<LinearFormats> formats_of(const Graph& graph, const Node& node,
                                        const LinearFormats& base,
                                        const std::vector<LinearOverride>& overrides,
                                        BlockScale block_scale) {
  const std::vector<LinearOverride> meant = meant_overrides(graph, node, overrides);
  if (meant.empty() && node.tag.layer < 0) return std::nullopt;
  return apply_overrides(base, meant, block_scale);
}

LinearGroups::LinearGroups(const Graph& graph, const LinearFormats& formats,
                           const std::vector<LinearOverride>& overrides, BlockScale block_scale,
                           Depthwise depthwise)
    : graph_(graph), of_node_(graph.nodes.size(), nullptr) {
  for (const Node& node : graph.nodes) {
    if (linear_role(node) != GemmRole::other) {
      add_linear(node, formats, overrides, block_scale);
    } else if (depthwise == Depthwise::grouped && depthwise_role(node) != GemmRole::other) {
      add_depthwise(node, formats, overrides, block_scale);
    }
  }
  share_weights();
}

void LinearGroups::share_weights() {
  const auto leader = [](LinearGroup* group) {
    while (group->of_scale != group) group = group->of_scale;
    return group;
  };
  std::map<ValueId, LinearGroup*> readers;  // by a parameter, or a frozen weight's constant
  for (LinearGroup& group : groups_) {
    group.of_scale = &group;
    for (const ValueId id : group.weights) {
      const GraphInput* frozen = frozen_weight(graph_, id);
      const auto [at, is_new] = readers.try_emplace(frozen == nullptr ? id : frozen->value, &group);
      if (is_new) continue;
      expect_same_format(graph_, id, *at->second, group);
      leader(&group)->of_scale = leader(at->second);
    }
  }
  for (LinearGroup& group : groups_) {
    group.of_scale = leader(&group);
    append_new(group.of_scale->scaled_weights, group.weights);
    append_new(group.of_scale->scaled_members, group.members);
  }
}

void LinearGroups::add_linear(const Node& node, const LinearFormats& formats,
                              const std::vector<LinearOverride>& overrides,
                              BlockScale block_scale) {
  const std::string name = member_name(node);
  if (linear_role(node) != GemmRole::forward) {
    const auto it = by_name_.find(name);
    if (it != by_name_.end() && !it->second->is_depthwise) add_backward(node, *it->second);
    return;
  }
  const auto resolved = formats_of(graph_, node, formats, overrides, block_scale);
  if (!resolved || !resolved->quantized) return;
  if (by_name_.contains(name))
    throw Error(ErrorCode::invalid_argument,
                "[recipe] expected one linear '{}', or other uses of it as '{}', got two of a name",
                name, use_origin(linear_of_use(name), 1));
  LinearGroup*& group = by_x_[{node.tag.layer, node.in(Gemm::a)}];
  // An overridden member leaves the group.
  if (group == nullptr || !(group->formats == *resolved)) {
    group = &groups_.emplace_back();
    group->name = name, group->formats = *resolved, group->x = node.in(Gemm::a);
  }
  group->members.push_back(name);
  if (const auto sums = sums_of(graph_, node, overrides)) sums_[name] = *sums;
  group->weights.push_back(node.in(Gemm::b));
  by_name_[name] = of_node_[graph_.id(node)] = group;
}

void LinearGroups::add_depthwise(const Node& node, const LinearFormats& formats,
                                 const std::vector<LinearOverride>& overrides,
                                 BlockScale block_scale) {
  const std::string name = linear_name(node);
  const auto known = by_name_.find(name);
  if (depthwise_role(node) != GemmRole::forward) {
    if (known != by_name_.end() && known->second->is_depthwise) add_backward(node, *known->second);
    return;
  }
  if (!is_weight(graph_, node.in(Binary::b))) return;
  const auto resolved = formats_of(graph_, node, formats, overrides, block_scale);
  if (!resolved || !resolved->quantized) return;
  if (known != by_name_.end())
    throw Error(ErrorCode::invalid_argument,
                "[recipe] expected one linear or convolution '{}', got two of a name", name);
  LinearGroup& group = groups_.emplace_back();
  group.name = name, group.formats = *resolved, group.x = node.in(Binary::a);
  group.members = {name}, group.weights = {node.in(Binary::b)}, group.is_depthwise = true;
  by_name_[name] = of_node_[graph_.id(node)] = &group;
}

// (x, w), (dy, x) and (dy, w).
LinearOperand LinearGroups::depthwise_operand(const LinearGroup& group, const Node& node,
                                              SlotId factor) {
  const GemmRole role = depthwise_role(node);
  const bool is_forward = role == GemmRole::forward, is_first = factor == Binary::a;
  const bool is_x = is_forward ? is_first : !is_first && role == GemmRole::wgrad;
  const OperandKind kind = is_x                      ? OperandKind::x
                           : is_first && !is_forward ? OperandKind::dy
                                                     : OperandKind::w;
  return {group, node.in(factor), kind, kind == OperandKind::dy ? GemmRole::dgrad : role, 1};
}

// The operand that is neither x nor the weight is the gradient.
void LinearGroups::add_backward(const Node& node, LinearGroup& group) {
  const auto known = [&](ValueId id) {
    return id == group.x || is_repeated_layer(graph_, id) ||
           std::ranges::any_of(group.weights,
                               [&](ValueId weight) { return is_same_weight(graph_, weight, id); });
  };
  const ValueId a = node.in(Gemm::a), gradient = known(a) ? node.in(Gemm::b) : a;
  if (std::ranges::find(group.gradients, gradient) == group.gradients.end())
    group.gradients.push_back(gradient);
  group.backward.push_back(graph_.id(node));
  of_node_[graph_.id(node)] = &group;
}

std::optional<GemmSums> LinearGroups::sums(const Node& node) const {
  const auto found = sums_.find(member_name(node));
  return found == sums_.end() ? std::nullopt : std::optional(found->second);
}

bool LinearGroups::has_backward() const {
  return std::ranges::any_of(groups_, [](const LinearGroup& g) { return !g.backward.empty(); });
}

LinearOperand LinearGroups::operand(const LinearGroup& group, const Node& node,
                                    SlotId factor) const {
  const ValueId value = node.in(factor);
  const GemmAttrs& attrs = gemm(node);
  const bool is_gradient = attrs.role != GemmRole::forward &&
                           std::ranges::find(group.gradients, value) != group.gradients.end();
  const OperandKind kind = is_gradient                ? OperandKind::dy
                           : is_weight(graph_, value) ? OperandKind::w
                                                      : OperandKind::x;
  const bool reduces_rows = factor == Gemm::a ? attrs.trans_a : !attrs.trans_b;
  return {group, value, kind, attrs.role, reduces_rows ? 0 : 1};
}

// Each reader of a weight that is dequantized has a value of its own: the constant is the same.
ScaleSharers LinearGroups::sharers(const LinearOperand& operand) const {
  const LinearGroup& group = operand.group;
  if (operand.kind == OperandKind::dy) return {group.gradients, group.gradients[0]};
  const ValueId value = measured_value(graph_, operand);
  if (operand.kind == OperandKind::x) return {{value}, value};
  const ValueIds& weights = group.of_scale->scaled_weights;
  if (graph_.input_of(value) != nullptr) return {weights, weights[0]};
  return {{value}, frozen_weight(graph_, value)->value};
}

Graph wait_for_group_gradients(const Graph& graph, const LinearGroups& groups) {
  std::vector<std::pair<NodeId, NodeId>> first_then;
  for (const LinearGroup& group : groups.all()) {
    for (const ValueId gradient : group.gradients) {
      const NodeId producer = graph.value(gradient).producer;
      for (const NodeId node : group.backward) {
        if (producer != kNoNode) first_then.emplace_back(producer, node);
      }
    }
  }
  return reorder(graph, first_then);
}

}  // namespace octet
