#include "passes/memory/recompute.h"

#include <algorithm>
#include <map>

#include "passes/memory/windows.h"
#include "passes/rewrite/rewrite.h"

namespace octet {

namespace {

// Codes of a product are kept: repeated, they would keep the product.
bool is_product(const Graph& graph, ValueId id) {
  return graph.producer(id, OpCode::gemm) != nullptr;
}

// Kept from the forward pass, 8-bit data of a weight would take one byte an element in each layer;
// the weight itself is there anyway.
bool quantizes_weight(const Graph& graph, const Node& node) {
  if (node.op != OpCode::quantize && node.op != OpCode::quantize_groups) return false;
  ValueId x = node.in(Quantize::x);
  // A frozen weight may be kept in eight bits of another format.
  if (const Node* made = graph.producer(x, OpCode::dequantize)) x = made->in(Dequantize::q);
  const GraphInput* input = graph.input_of(x);
  return input != nullptr && is_kept(input->kind);
}

bool is_cheap(const Graph& graph, const Node& node, ValueId result) {
  if (is_norm_or_activation(node.op)) return node.out(Unary::y) == result;  // statistics are kept
  if (node.op == OpCode::quantize) return !is_product(graph, node.in(Quantize::x));
  return node.op == OpCode::dequantize || node.op == OpCode::unfold;
}

class Recomputer {
 public:
  Recomputer(const Graph& graph, const RecomputeOptions& options)
      : rewriter_(graph), options_(options) {}

  Graph run() {
    for (const Node& node : rewriter_.from().nodes) {
      if (node.tag.role != Role::backward || node.tag.layer < 0) {
        rewriter_.copy(node);
        continue;
      }
      ValueIds operands;
      for (const ValueId id : node.operands) operands.push_back(again(id, node.tag));
      rewriter_.builder().tag = node.tag;
      rewriter_.replace(node, node.op, node.attrs, operands);
    }
    return rewriter_.finish();
  }

 private:
  bool is_full(int layer) const {
    return options_.what == Recompute::full && (options_.n_layers < 0 || layer < options_.n_layers);
  }
  bool repeats(const Node& node, ValueId result, const Tag& reader) const {
    if (node.tag.role != Role::forward || node.tag.layer < 0) return false;
    // Scalars, scales among them, are kept: an amax would need its operand for nothing else.
    const bool is_scalar = rewriter_.from().type(result).shape.empty();
    if (is_full(reader.layer)) return node.tag.layer == reader.layer && !is_scalar;
    const Graph& from = rewriter_.from();
    if (quantizes_weight(from, node) || cuts_windows(from, node)) return true;
    return options_.what != Recompute::none && is_cheap(from, node, result);
  }
  // The value for a backward reader: repeated if it is a cheap forward result, else as it is.
  ValueId again(ValueId old_id, const Tag& reader) {
    if (old_id == kNoValue) return kNoValue;
    const Graph& from = rewriter_.from();
    const Node* producer = from.producer(old_id);
    if (producer == nullptr || !repeats(*producer, old_id, reader)) return rewriter_.map(old_id);
    const Node& node = *producer;
    if (const auto it = again_.find(old_id); it != again_.end()) return it->second;
    ValueIds operands;
    for (const ValueId id : node.operands) operands.push_back(again(id, reader));
    Builder& b = rewriter_.builder();
    b.tag = Tag{.layer = reader.layer,
                .role = Role::backward,
                .origin = node.tag.origin,
                .layer_name = reader.layer_name};
    const auto results = b.emit_typed(node.op, node.attrs, operands, result_types(from, node));
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] != kNoValue) again_[node.results[i]] = results[i];
    }
    return again_.at(old_id);
  }

  Rewriter rewriter_;
  RecomputeOptions options_;
  std::map<ValueId, ValueId> again_;  // old value -> repeated value
};

}  // namespace

Graph recompute(const Graph& graph, const RecomputeOptions& options) {
  return Recomputer(graph, options).run();
}

}  // namespace octet
