#include "passes/precision/store_frozen.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "passes/precision/policy.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

bool is_frozen(const Graph& graph, ValueId id) {
  const GraphInput* input = graph.input_of(id);
  return input != nullptr && input->kind == InputKind::constant && is_float(graph.type(id).dtype);
}

// A weight's data and scales in the new graph.
struct Stored {
  ValueId scale = kNoValue;
  Dtype dtype = Dtype::real;  // that the recipe computes in
};

class Freezer {
 public:
  Freezer(const Graph& graph, FrozenFormat format)
      : rewriter_(graph), b_(rewriter_.builder()), format_(format) {}

  Graph run() {
    const Graph& from = rewriter_.from();
    for (const Node& node : from.nodes) {
      if (is_layer_gemm(node)) store(node);
    }
    for (const GraphInput& input : from.inputs) {
      if (format_ == FrozenFormat::bf16 && is_frozen(from, input.value)) narrow(input.value);
    }
    for (const Node& node : from.nodes) read(node);
    return rewriter_.finish();
  }

 private:
  // Blocks lie as groups: a block's scale stands in each of its rows.
  Granularity frozen_granularity() const {
    using Kind = Granularity::Kind;
    if (format_ != FrozenFormat::e4m3_blocks) return {.kind = Kind::tensor};
    return {.kind = Kind::group, .size = kFrozenBlock, .scale = Dtype::bf16};
  }
  TensorType& type_of(ValueId old_id) { return b_.graph().value(rewriter_.map(old_id)).type; }

  void narrow(ValueId id) {
    TensorType& type = type_of(id);
    if (type.dtype == Dtype::bf16) return;
    stored_[id] = {.dtype = type.dtype};
    type.dtype = Dtype::bf16;
  }

  void store(const Node& gemm) {
    if (!is_quantized(format_)) return;
    const Graph& from = rewriter_.from();
    for (const ValueId id : {gemm.in(Gemm::a), gemm.in(Gemm::b)}) {
      if (!is_frozen(from, id) || stored_.contains(id)) continue;
      const TensorType type{.dtype = frozen_dtype(format_),
                            .shape = from.type(id).shape,
                            .granularity = frozen_granularity()};
      const std::string name = frozen_scale_name(from.input_of(id)->name);
      const ValueId scale = b_.input(InputKind::constant, name, scale_type(type));
      stored_[id] = {scale, from.type(id).dtype};
      type_of(id) = type;
    }
  }

  // Each reader has its own dequantized copy, in its own place.
  void read(const Node& node) {
    ValueIds operands = rewriter_.map(node.operands);
    b_.tag = node.tag;
    bool is_changed = false;
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto found = stored_.find(node.operands[i]);
      if (operands[i] == kNoValue || found == stored_.end()) continue;
      operands[i] = widened(operands[i], found->second);
      is_changed = true;
    }
    if (!is_changed) {
      rewriter_.copy(node);
      return;
    }
    rewriter_.replace(node, node.op, node.attrs, operands);
  }

  ValueId widened(ValueId data, const Stored& stored) {
    if (stored.scale == kNoValue) return b_.cast(data, stored.dtype);
    return b_.dequantize(data, stored.scale, stored.dtype);
  }

  Rewriter rewriter_;
  Builder& b_;
  FrozenFormat format_;
  std::map<ValueId, Stored> stored_;  // by the old input
};

}  // namespace

std::string frozen_scale_name(std::string_view weight) {
  return std::string("frozen_scale:").append(weight);
}

Graph store_frozen(const Graph& typed, FrozenFormat format) {
  CHECK(typed.phase == Phase::typed);
  return format == FrozenFormat::as_computed ? typed : Freezer(typed, format).run();
}

const GraphInput* frozen_weight(const Graph& graph, ValueId id) {
  if (const Node* node = graph.producer(id, OpCode::dequantize)) id = node->in(Dequantize::q);
  const GraphInput* input = id == kNoValue ? nullptr : graph.input_of(id);
  return input != nullptr && input->kind == InputKind::constant ? input : nullptr;
}

}  // namespace octet
