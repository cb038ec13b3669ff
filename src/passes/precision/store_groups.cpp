#include "passes/precision/store_groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/op_def.h"
#include "passes/precision/linear_groups.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

class GroupStorer {
 public:
  GroupStorer(const Graph& graph, const StoreGroupsOptions& options)
      : options_(options),
        rewriter_(graph),
        b_(rewriter_.builder()),
        attrs_{.target = options.target} {
    for (const Node& node : graph.nodes) {
      if (node.tag.role != Role::forward)
        read_backward_.insert(node.operands.begin(), node.operands.end());
      if (!has_group_operands(node) || !std::holds_alternative<NormAttrs>(node.attrs)) continue;
      for (const ScalePlace place : op_def(node.op).scales)
        normalized_.insert(node.in(place.operand));
    }
    for (const Node& node : graph.nodes) {
      Tag tag = node.tag;
      tag.role = Role::forward;
      for (const size_t slot : saved_of_attention(node)) {
        stored_.emplace(node.operands[slot], tag);
        if (slot == AttentionGrad::o && node.op == OpCode::attention_grad)
          saved_outputs_.insert(node.operands[slot]);
      }
      if (!has_group_operands(node)) continue;
      for (const ScalePlace place : op_def(node.op).scales) {
        if (reads_groups(node, place) || is_repeated(node))
          stored_.emplace(node.in(place.operand), tag);
      }
    }
  }

  Graph run() {
    for (const GraphInput& input : rewriter_.from().inputs) {
      if (const auto it = stored_.find(input.value); it != stored_.end())
        store(input.value, rewriter_.map(input.value), it->second);
    }
    for (const Node& node : rewriter_.from().nodes) {
      const bool residual = node.op == OpCode::add && stored_.count(node.out(Binary::y)) > 0;
      if (residual) {
        wide_sum(node);
      } else if (const int* log2 = result_scale(node); log2 && stored_.count(node.out(Gemm::y))) {
        store_result(node, *log2);
      } else {
        copy(node);
      }
      for (const ValueId id : node.results) {
        if (id != kNoValue && stored_.count(id) > 0 && groups_.count(id) == 0)
          store(id, rewriter_.map(id), node.tag);
      }
    }
    return rewriter_.finish();
  }

 private:
  void store(ValueId old_id, ValueId value, const Tag& tag) {
    b_.tag = tag;
    const ResultType groups(options_.dtype, options_.group);
    const auto results = b_.emit_typed(OpCode::quantize_groups, attrs_, {value}, {groups});
    groups_[old_id] = {results[QuantizeGroups::q], results[QuantizeGroups::scale]};
  }

  static bool has_group_operands(const Node& node) {
    return node.tag.layer >= 0 && op_def(node.op).saves;
  }

  // Operands of attention that are read as they are stored.
  std::vector<size_t> saved_of_attention(const Node& node) const {
    if (options_.attention == SavedAttention::wide || node.tag.layer < 0) return {};
    if (node.op == OpCode::attention && options_.forward_reads == ForwardReads::stored)
      return {Attention::q, Attention::k, Attention::v};
    if (node.op != OpCode::attention_grad) return {};
    std::vector<size_t> slots = {AttentionGrad::q, AttentionGrad::k, AttentionGrad::v};
    if (options_.attention == SavedAttention::qkvo) slots.push_back(AttentionGrad::o);
    return slots;
  }

  // The backward pass does, and what the forward pass makes in codes alone has no other form.
  bool reads_groups(const Node& node, ScalePlace place) const {
    if (node.tag.role != Role::forward || options_.forward_reads == ForwardReads::stored)
      return true;
    const Node* producer = rewriter_.from().producer(node.in(place.operand));
    return producer != nullptr && result_scale(*producer) != nullptr;
  }

  // Scale of a linear's result, where that has one scale.
  const int* result_scale(const Node& node) const {
    if (linear_role(node) != GemmRole::forward) return nullptr;
    const ValueId y = node.out(Gemm::y);
    if (normalized_.count(y) > 0) return nullptr;
    const auto scale = options_.result_scales.find(member_name(node));
    return scale == options_.result_scales.end() ? nullptr : &scale->second;
  }

  // Codes of the f32 product.
  void store_result(const Node& node, int log2) {
    b_.tag = node.tag;
    const ValueId y =
        b_.emit_typed(node.op, node.attrs, rewriter_.map(node.operands), {Dtype::f32})[0];
    const auto [constant, is_new] = constants_.try_emplace(log2, kNoValue);
    if (is_new) constant->second = b_.fill({}, std::ldexp(1.0, log2));
    const ValueId scale = constant->second;
    const auto q = b_.emit_typed(OpCode::quantize, attrs_, {y, scale}, {options_.dtype});
    groups_[node.out(Gemm::y)] = {q[0], scale};
    rewriter_.set(node.results, {y});
  }

  void wide_sum(const Node& node) {
    b_.tag = node.tag;
    const Dtype wide = Dtype::f32, narrow = rewriter_.from().type(node.out(Binary::y)).dtype;
    const ValueId sum =
        b_.emit_typed(OpCode::add, NoAttrs{}, rewriter_.map(node.operands), {wide})[0];
    rewriter_.set(node.results, {b_.cast(sum, narrow)});
    store(node.out(Binary::y), sum, node.tag);
  }

  void copy(const Node& node) {
    ValueIds operands = rewriter_.map(node.operands);
    if (node.tag.role != Role::forward) {
      for (size_t i = 0; i < operands.size(); ++i) {
        if (const ValueId repeated = repeat(node.operands[i], node.tag); repeated != kNoValue)
          operands[i] = repeated;
      }
    }
    b_.tag = node.tag;
    if (node.tag.role != Role::forward) {
      for (size_t i = 0; i < operands.size(); ++i) {
        if (saved_outputs_.count(node.operands[i]) > 0) operands[i] = dequantized(node.operands[i]);
      }
    }
    if (has_group_operands(node)) dequantize_groups(node, operands);
    for (const size_t slot : saved_of_attention(node))
      operands[slot] = dequantized(node.operands[slot]);
    rewriter_.replace(node, node.op, node.attrs, operands);
  }

  // Attention's saved value, in the type that it had; one for all readers of the backward pass.
  ValueId dequantized(ValueId old_id) {
    const auto [codes, scales] = groups_.at(old_id);
    const Dtype dtype = rewriter_.from().type(old_id).dtype;
    if (saved_outputs_.count(old_id) == 0) return b_.dequantize(codes, scales, dtype);
    const auto [at, is_new] = dequantized_.try_emplace(old_id, kNoValue);
    if (is_new) at->second = b_.dequantize(codes, scales, dtype);
    return at->second;
  }

  // In the places of those that the node reads stored.
  void dequantize_groups(const Node& node, ValueIds& operands) {
    for (const ScalePlace place : op_def(node.op).scales) {
      if (!reads_groups(node, place)) continue;
      const auto& [codes, scales] = groups_.at(node.in(place.operand));
      operands[place.operand] = b_.dequantize(codes, scales, Dtype::f32);
    }
  }

  // The first result of a forward node, made again before its first reader of the backward pass
  // from what is stored; kNoValue where that reads what the forward pass made.
  ValueId repeat(ValueId old_id, const Tag& reader) {
    const Graph& from = rewriter_.from();
    const Node* producer = from.producer(old_id);
    if (producer == nullptr || !is_repeated(*producer) || producer->results[0] != old_id)
      return kNoValue;
    const Node& node = *producer;
    if (const auto it = repeated_.find(old_id); it != repeated_.end()) return it->second;
    Node again = node;
    again.tag = Tag{.layer = reader.layer,
                    .role = Role::backward,
                    .origin = node.tag.origin,
                    .layer_name = reader.layer_name};
    ValueIds operands = rewriter_.map(node.operands);
    b_.tag = again.tag;
    dequantize_groups(again, operands);
    if (is_norm(node.op)) {  // its statistics are its last results and its last operands
      operands.resize(op_def(node.op).operands.size(), kNoValue);
      std::ranges::copy_backward(
          rewriter_.map(ValueIds(node.results.begin() + 1, node.results.end())), operands.end());
    }
    const Dtype dtype = from.type(old_id).dtype;
    return repeated_[old_id] = b_.emit_typed(node.op, node.attrs, operands, {dtype})[0];
  }

  // True if the backward pass reads the result of a forward node that reads other than is stored.
  bool is_repeated(const Node& node) const {
    const auto is_read = [&](ScalePlace place) { return reads_groups(node, place); };
    return has_group_operands(node) && node.tag.role == Role::forward &&
           read_backward_.count(node.results[0]) > 0 &&
           !std::ranges::all_of(op_def(node.op).scales, is_read);
  }

  struct Stored {
    ValueId codes, scales;
  };

  const StoreGroupsOptions& options_;
  Rewriter rewriter_;
  Builder& b_;
  QuantizeAttrs attrs_;
  std::set<ValueId> saved_outputs_;  // of attention: its projection's gradient reads them, too
  std::map<ValueId, ValueId> dequantized_;  // of these
  std::map<ValueId, Tag> stored_;           // old values, by their first reader
  std::set<ValueId> normalized_;            // those that a norm reads
  std::set<ValueId> read_backward_;         // what nodes of the backward pass read
  std::map<ValueId, Stored> groups_;        // by old value
  std::map<ValueId, ValueId> repeated_;     // by old value, for the backward pass
  std::map<int, ValueId> constants_;        // by log2
};

}  // namespace

bool is_repeated_layer(const Graph& graph, ValueId id) {
  const Node* node = graph.producer(id);
  if (node == nullptr || node->tag.role != Role::backward) return false;
  return is_norm_or_activation(node->op);
}

Graph store_groups(const Graph& graph, const StoreGroupsOptions& options) {
  CHECK(graph.phase == Phase::typed);
  return GroupStorer(graph, options).run();
}

}  // namespace octet
