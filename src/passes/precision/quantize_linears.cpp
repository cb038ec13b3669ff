#include "passes/precision/quantize_linears.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "passes/precision/store_frozen.h"
#include "passes/reorder.h"
#include "passes/rewrite.h"

namespace octet {
namespace {

enum class Kind : uint8_t { x, w, dy };

// The linears of one layer that read the same x.
struct LinearGroup {
  std::string name;  // of its first member
  LinearFormats formats;
  std::vector<std::string> members;
  std::vector<ValueId> weights, gradients;
  std::vector<NodeId> backward;  // the members' dgrad and wgrad nodes
};

bool is_weight(const Graph& graph, ValueId id) {
  const GraphInput* input = graph.input_of(id);
  return (input != nullptr && input->kind == InputKind::parameter) || frozen_weight(graph, id);
}

// Each reader of a frozen weight in eight bits has a value of its own.
bool is_same_weight(const Graph& graph, ValueId a, ValueId b) {
  const GraphInput* frozen = frozen_weight(graph, a);
  return a == b || (frozen != nullptr && frozen == frozen_weight(graph, b));
}

const Node* dequantize_of(const Graph& graph, ValueId id) {
  const NodeId producer = graph.values[static_cast<size_t>(id)].producer;
  if (producer == kNoNode || frozen_weight(graph, id) == nullptr) return nullptr;
  return &graph.nodes[static_cast<size_t>(producer)];
}

// Where a weight is kept in eight bits, as they are asked for: what makes it wide again.
const Node* stored_weight(const Graph& graph, ValueId id, Dtype dtype) {
  const Node* dequantize = dequantize_of(graph, id);
  const bool fits = dequantize != nullptr &&
                    std::get<QuantizeAttrs>(dequantize->attrs).group == 0 &&
                    graph.type(dequantize->in(Dequantize::q)).dtype == dtype;
  return fits ? dequantize : nullptr;
}

// Finds the groups, and says for each gemm which one it belongs to.
class Groups {
 public:
  Groups(const Graph& graph, const QuantizeLinearsOptions& options)
      : graph_(graph), of_node_(graph.nodes.size(), -1) {
    std::map<std::pair<int, ValueId>, int> by_x;
    std::map<std::string, std::pair<int, ValueId>> by_name;  // the group, and the member's x
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      if (!is_linear(node)) continue;
      const std::string name = linear_name(node);
      if (gemm(node).role != GemmRole::forward) {
        if (const auto it = by_name.find(name); it != by_name.end())
          add_backward(node, static_cast<NodeId>(n), it->second);
        continue;
      }
      const LinearFormats formats = resolve(options.formats, options.overrides, name);
      if (!formats.quantized) continue;
      auto [it, added] =
          by_x.try_emplace({node.tag.layer, node.in(Gemm::a)}, static_cast<int>(groups_.size()));
      if (!added && !(groups_[static_cast<size_t>(it->second)].formats == formats)) {
        it->second = static_cast<int>(groups_.size());  // an overridden member leaves the group
        added = true;
      }
      if (added)
        groups_.push_back({.name = name,
                           .formats = formats,
                           .members = {},
                           .weights = {},
                           .gradients = {},
                           .backward = {}});
      groups_[static_cast<size_t>(it->second)].members.push_back(name);
      groups_[static_cast<size_t>(it->second)].weights.push_back(node.in(Gemm::b));
      by_name[name] = {it->second, node.in(Gemm::a)};
      of_node_[n] = it->second;
    }
  }

  static bool is_linear(const Node& node) {
    return node.op == OpCode::gemm && node.tag.layer >= 0 && gemm(node).role != GemmRole::other;
  }
  static const GemmAttrs& gemm(const Node& node) { return std::get<GemmAttrs>(node.attrs); }
  const LinearGroup* of(NodeId node) const {
    const int group = of_node_[static_cast<size_t>(node)];
    return group < 0 ? nullptr : &groups_[static_cast<size_t>(group)];
  }
  const std::vector<LinearGroup>& all() const { return groups_; }

 private:
  // The operand that is neither x nor the weight is the gradient.
  void add_backward(const Node& node, NodeId n, const std::pair<int, ValueId>& member) {
    LinearGroup& group = groups_[static_cast<size_t>(member.first)];
    const auto known = [&](ValueId id) {
      return id == member.second || std::ranges::any_of(group.weights, [&](ValueId weight) {
               return is_same_weight(graph_, weight, id);
             });
    };
    const ValueId a = node.in(Gemm::a), gradient = known(a) ? node.in(Gemm::b) : a;
    if (std::find(group.gradients.begin(), group.gradients.end(), gradient) ==
        group.gradients.end()) {
      group.gradients.push_back(gradient);
    }
    group.backward.push_back(n);
    of_node_[static_cast<size_t>(n)] = member.first;
  }

  const Graph& graph_;
  std::vector<LinearGroup> groups_;
  std::vector<int> of_node_;
};

// Codes of a weight that are kept.
struct Copy {
  ValueId value = kNoValue;  // the derived input
  QuantizeAttrs attrs;
  bool transposed = false;
};

class LinearQuantizer {
 public:
  LinearQuantizer(const Graph& graph, const Groups& groups, const QuantizeLinearsOptions& options)
      : rewriter_(graph), b_(rewriter_.builder()), groups_(groups), options_(options) {}

  Graph run() {
    const Graph& from = rewriter_.from();
    for (size_t n = 0; n < from.nodes.size(); ++n) {
      const LinearGroup* group = groups_.of(static_cast<NodeId>(n));
      if (group == nullptr) {
        rewriter_.copy(from.nodes[n]);
      } else {
        quantized_gemm(from.nodes[n], *group);
      }
    }
    if (trains()) refresh_copies();
    Graph result = rewriter_.finish();
    Builder builder(result);
    for (const auto& [value, updates] : new_outputs_) builder.next(updates, value);
    if (flags_.empty()) return result;
    builder.tag = Tag{.layer = -1, .role = Role::backward, .origin = std::string(kQuantizerFlag)};
    builder.output(std::string(kQuantizerFlag), builder.emit1(OpCode::any_of, NoAttrs{}, flags_));
    return result;
  }

 private:
  Kind kind_of(const Node& node, const LinearGroup& group, ValueId operand) const {
    if (std::find(group.gradients.begin(), group.gradients.end(), operand) !=
            group.gradients.end() &&
        Groups::gemm(node).role != GemmRole::forward) {
      return Kind::dy;
    }
    return is_weight(rewriter_.from(), operand) ? Kind::w : Kind::x;
  }

  void quantized_gemm(const Node& node, const LinearGroup& group) {
    const GemmAttrs& attrs = Groups::gemm(node);
    std::vector<ValueId> operands(op_def(OpCode::gemm).operands.size(), kNoValue);
    operands[Gemm::c] = rewriter_.map(node.in(Gemm::c));
    const auto quantize = [&](SlotId factor, SlotId scale, bool trans) {
      const ValueId operand = node.in(factor);
      const Kind kind = kind_of(node, group, operand);
      b_.tag = node.tag;
      operands[scale] = scale_of(group, kind, operand);
      operands[factor] = codes_of(group, kind, operand, options_.k_major && trans, operands[scale]);
    };
    // K-major as it lies: a with its reduction last, or b transposed.
    quantize(Gemm::a, Gemm::scale_a, attrs.trans_a);
    quantize(Gemm::b, Gemm::scale_b, !attrs.trans_b);
    b_.tag = node.tag;
    const bool fast =
        attrs.role == GemmRole::forward || options_.fast_accumulate == FastAccumulate::all;
    const GemmAttrs of_codes{.trans_a = !options_.k_major && attrs.trans_a,
                             .trans_b = options_.k_major || attrs.trans_b,
                             .role = attrs.role,
                             .fast_accumulate = fast};
    const Dtype dtype = rewriter_.from().type(node.out(Gemm::y)).dtype;
    rewriter_.set(node.results, b_.emit_typed(OpCode::gemm, of_codes, operands, {&dtype, 1}));
  }

  static const OperandFormat& format(const LinearGroup& group, Kind kind) {
    return kind == Kind::x ? group.formats.x : kind == Kind::w ? group.formats.w : group.formats.dy;
  }
  static QuantizeAttrs attrs_of(const OperandFormat& format) {
    return {.dtype = format.dtype,
            .target = format.target,
            .group = 0,
            .transposed = false,
            .pad = kPadRows};
  }

  // Whether anything is kept of the group's weights between updates: not of those that are
  // dequantized.
  bool keeps_copies(const LinearGroup& group) const {
    const Graph& from = rewriter_.from();
    return options_.weight_copy != WeightCopy::per_use &&
           std::ranges::all_of(group.weights,
                               [&](ValueId w) { return from.input_of(w) != nullptr; });
  }

  // What shares the operand's scale; of a weight that is dequantized, that one alone.
  std::vector<ValueId> members_of(const LinearGroup& group, Kind kind, ValueId operand) const {
    if (kind == Kind::dy) return group.gradients;
    const bool is_plain = kind == Kind::w && rewriter_.from().input_of(operand) != nullptr;
    return is_plain ? group.weights : std::vector<ValueId>{operand};
  }

  // One scale per x, and per group for weights and gradients.
  ValueId scale_of(const LinearGroup& group, Kind kind, ValueId operand) {
    const OperandFormat& fmt = format(group, kind);
    const Graph& from = rewriter_.from();
    const Node* stored = kind == Kind::w ? stored_weight(from, operand, fmt.dtype) : nullptr;
    if (stored != nullptr) return rewriter_.map(stored->in(Dequantize::scale));
    const std::vector<ValueId> members = members_of(group, kind, operand);
    const GraphInput* frozen = kind == Kind::w ? frozen_weight(from, operand) : nullptr;
    const ValueId first = frozen != nullptr && members.size() == 1 ? frozen->value : members[0];
    const auto key = std::tuple(first, kind, fmt.dtype);
    if (const auto it = scales_.find(key); it != scales_.end()) return it->second;
    if (predicts()) return scales_[key] = predicted_scale(group, kind, fmt.dtype);
    if (kind == Kind::w && keeps_copies(group))
      return scales_[key] = b_.state(StateUse::weight_scale, group.name, {Dtype::f32, {}});
    const auto amax = b_.emit(OpCode::amax, NoAttrs{}, rewriter_.map(members));
    flags_.push_back(amax[AmaxOp::nonfinite]);
    const ValueId scale = options_.scaling == Scaling::current || kind == Kind::w
                              ? b_.emit1(OpCode::quant_scale, attrs_of(fmt), {amax[AmaxOp::amax]})
                              : delayed_scale(group, kind, fmt, amax[AmaxOp::amax]);
    return scales_[key] = scale;
  }

  bool predicts() const { return !options_.predicted.empty(); }

  // Codes = x / scale lie in the middle of where their format keeps its signal-to-noise ratio.
  ValueId predicted_scale(const LinearGroup& group, Kind kind, Dtype dtype) {
    double rms = -std::numeric_limits<double>::infinity();
    for (const std::string& member : group.members) {
      const LinearRms& of = options_.predicted.at(member);
      rms = std::max(rms, kind == Kind::x ? of.x : kind == Kind::w ? of.w : of.dy);
    }
    if (!std::isfinite(rms)) rms = 0;
    const int log2 = static_cast<int>(std::ceil(rms - 0.5)) - quantizer_centre(dtype);
    const auto [it, added] = constants_.try_emplace(log2, kNoValue);
    if (added) it->second = b_.fill({}, std::ldexp(1.0, log2));
    return it->second;
  }

  ValueId delayed_scale(const LinearGroup& group, Kind kind, const OperandFormat& fmt,
                        ValueId amax) {
    const std::string site = group.name + (kind == Kind::x ? ".x" : ".dy");
    const ValueId history =
        b_.state(StateUse::amax_history, site, {.dtype = Dtype::f32, .shape = {kAmaxHistory}});
    const auto results = b_.emit(OpCode::delayed_scale, attrs_of(fmt), {amax, history});
    new_outputs_.emplace_back(results[DelayedScale::next_history], history);
    return results[DelayedScale::scale];
  }

  ValueId codes_of(const LinearGroup& group, Kind kind, ValueId operand, bool transposed,
                   ValueId scale) {
    const OperandFormat& fmt = format(group, kind);
    const auto key = std::tuple(operand, kind, fmt.dtype, transposed);
    if (const auto it = codes_.find(key); it != codes_.end()) return it->second;
    QuantizeAttrs attrs = attrs_of(fmt);
    // Tokens are padded, where they are the reduction: both factors of wgrad. Weights are as long
    // as the codes that they meet.
    if (kind == Kind::w) {
      attrs.pad = 1;
      if (const Node* stored = stored_weight(rewriter_.from(), operand, fmt.dtype)) {
        const ValueId q = rewriter_.map(stored->in(Dequantize::q));
        return codes_[key] = transposed ? b_.transpose(q, {1, 0}) : q;
      }
      if (keeps_codes(options_.weight_copy) && keeps_copies(group))
        return codes_[key] = copied_codes(operand, attrs, transposed);
    }
    const ValueId value = rewriter_.map(operand);
    // Both forms in one pass where both are wanted at once: gradients always, x where its transpose
    // is kept.
    const bool both =
        options_.k_major &&
        (kind == Kind::dy || (kind == Kind::x && options_.keep_transposed_x && trains()));
    if (both) {
      const auto results = b_.emit(OpCode::quantize_both, attrs, {value, scale});
      const ValueId q = codes_[{operand, kind, fmt.dtype, false}] = results[QuantizeBoth::q];
      const ValueId q_t = codes_[{operand, kind, fmt.dtype, true}] =
          results[QuantizeBoth::q_transposed];
      return transposed ? q_t : q;
    }
    attrs.transposed = transposed;
    return codes_[key] = b_.emit1(OpCode::quantize, attrs, {value, scale});
  }

  // The kept codes in this layout, or made from those that are kept in the other.
  ValueId copied_codes(ValueId weight, const QuantizeAttrs& attrs, bool transposed) {
    const std::string& name = rewriter_.from().input_of(weight)->name;
    const auto kept = copies_.find(weight);
    if (options_.weight_copy == WeightCopy::w_only && kept != copies_.end())
      return b_.transpose(kept->second.front().value, {1, 0});
    Shape shape = rewriter_.from().type(weight).shape;
    if (transposed) std::swap(shape[0], shape[1]);
    const StateUse use = transposed ? StateUse::weight_quantized_t : StateUse::weight_quantized;
    const Copy copy{.value = b_.state(use, name, {attrs.dtype, std::move(shape)}),
                    .attrs = attrs,
                    .transposed = transposed};
    copies_[weight].push_back(copy);
    return copy.value;
  }

  // What is kept, from the parameters: one scale for a group.
  void refresh_copies() {
    for (const LinearGroup& group : groups_.all()) {
      if (!keeps_copies(group)) continue;
      b_.tag = Tag{.layer = -1, .role = Role::update, .origin = group.name};
      if (predicts()) {
        if (!keeps_codes(options_.weight_copy)) continue;
        const ValueId scale = scale_of(group, Kind::w, group.weights[0]);
        for (const ValueId weight : group.weights) refresh(copies_.at(weight), weight, scale);
        continue;
      }
      const auto amax = b_.emit(OpCode::amax, NoAttrs{}, rewriter_.map(group.weights));
      const ValueId scale =
          b_.emit1(OpCode::quant_scale, attrs_of(group.formats.w), {amax[AmaxOp::amax]});
      const ValueId home = scales_.at({group.weights[0], Kind::w, group.formats.w.dtype});
      new_outputs_.emplace_back(scale, home);
      if (!keeps_codes(options_.weight_copy)) continue;
      for (const ValueId weight : group.weights) refresh(copies_.at(weight), weight, scale);
    }
  }

  void refresh(const std::vector<Copy>& copies, ValueId weight, ValueId scale) {
    QuantizeAttrs attrs = copies[0].attrs;
    const std::vector<ValueId> operands = {rewriter_.map(weight), scale};
    attrs.transposed = copies.size() == 1 && copies[0].transposed;
    const auto codes =
        b_.emit(copies.size() == 1 ? OpCode::quantize : OpCode::quantize_both, attrs, operands);
    for (const Copy& copy : copies) {
      const SlotId at = copies.size() == 2 && copy.transposed ? SlotId{QuantizeBoth::q_transposed}
                                                              : SlotId{QuantizeBoth::q};
      new_outputs_.emplace_back(codes[at], copy.value);
    }
  }

  bool trains() const {
    const auto& groups = groups_.all();
    return std::any_of(groups.begin(), groups.end(),
                       [](const LinearGroup& g) { return !g.backward.empty(); });
  }

  Rewriter rewriter_;
  Builder& b_;
  const Groups& groups_;
  const QuantizeLinearsOptions& options_;
  std::map<std::tuple<ValueId, Kind, Dtype>, ValueId> scales_;
  std::map<std::tuple<ValueId, Kind, Dtype, bool>, ValueId> codes_;
  std::map<ValueId, std::vector<Copy>> copies_;  // by weight
  std::map<int, ValueId> constants_;             // powers of two
  std::vector<ValueId> flags_;
  std::vector<std::pair<ValueId, ValueId>> new_outputs_;  // a value, and the state that it updates
};

// Every backward GEMM of a group after the gradients of all its members.
Graph wait_for_group_gradients(const Graph& graph, const Groups& groups) {
  std::vector<std::pair<NodeId, NodeId>> first_then;
  for (const LinearGroup& group : groups.all()) {
    for (const ValueId gradient : group.gradients) {
      const NodeId producer = graph.values[static_cast<size_t>(gradient)].producer;
      for (const NodeId node : group.backward) {
        if (producer != kNoNode) first_then.emplace_back(producer, node);
      }
    }
  }
  return reorder(graph, first_then);
}

Graph quantized(const Graph& graph, const QuantizeLinearsOptions& options) {
  const Groups groups(graph, options);
  return LinearQuantizer(graph, groups, options).run();
}

}  // namespace

Graph quantize_linears(const Graph& graph, const QuantizeLinearsOptions& options) {
  CHECK(graph.phase == Phase::typed);
  // Scales that are known wait for no other member's gradient.
  if (!options.predicted.empty()) return quantized(graph, options);
  return quantized(wait_for_group_gradients(graph, Groups(graph, options)), options);
}

}  // namespace octet
