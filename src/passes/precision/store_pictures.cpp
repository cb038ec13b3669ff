#include "passes/precision/store_pictures.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/op_def.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

bool is_convolution(const Node& node) {
  return std::holds_alternative<ConvolutionAttrs>(node.attrs);
}

// Elements are moved, rounded, or computed of those at the same place.
bool is_elementwise(const Node& node) {
  switch (node.op) {
    case OpCode::gemm:
    case OpCode::reduce_sum:
    case OpCode::reduce_max:
    case OpCode::attention:
    case OpCode::dot:
    case OpCode::embedding:
      return false;
    default:
      return node.results.size() == 1 && !op_def(node.op).is_collective && !is_convolution(node);
  }
}

class PictureStorer {
 public:
  PictureStorer(const Graph& graph, const StoreGroupsOptions& options)
      : options_(options), rewriter_(graph), b_(rewriter_.builder()) {
    for (const Node& node : graph.nodes) {
      if (!is_reader(node)) continue;
      for (const ValueId id : node.operands) collect(id, node.tag.layer);
    }
  }

  Graph run() {
    for (const Node& node : rewriter_.from().nodes) {
      is_reader(node) ? read_again(node) : void(rewriter_.copy(node));
      for (const ValueId id : node.results)
        if (id != kNoValue && stored_.contains(id)) store(id, node.tag);
    }
    return rewriter_.finish();
  }

 private:
  enum class Way : uint8_t { kept, stored, repeated };

  static bool is_reader(const Node& node) {
    return node.tag.role == Role::backward && node.tag.layer >= 0;
  }

  // Way of a value of the forward pass that the backward pass of a layer reads.
  Way way_of(ValueId id, int layer) const {
    const Graph& from = rewriter_.from();
    const Node* node = id == kNoValue ? nullptr : from.producer(id);
    if (node == nullptr || node->tag.role != Role::forward) return Way::kept;
    if (node->operands.empty()) return Way::repeated;  // constants, which layers share
    const TensorType& type = from.type(id);
    const bool is_picture = type.shape.size() == 2 && is_float(type.dtype);
    const bool is_of_other_layer = node->tag.layer != layer;
    const bool reads_weight = node->op == OpCode::quantize || node->op == OpCode::quantize_groups;
    if (reads_weight && from.input_of(node->operands.front()) != nullptr) return Way::kept;
    if (type.shape.size() < 2 && !is_of_other_layer) return Way::kept;
    const bool is_sum = is_sum_of_products(*node);
    // A stream that gains channels from layer to layer is its parts.
    if (is_picture && node->op == OpCode::concatenate && !is_sum) return Way::repeated;
    if (is_picture && (is_of_other_layer || is_sum)) return Way::stored;
    const bool is_repeated = is_elementwise(*node) || node->op == OpCode::batch_norm;
    return is_repeated && !is_of_other_layer ? Way::repeated : Way::kept;
  }

  // GEMMs', with their bias and beside each other, or a depthwise convolution's.
  bool is_sum_of_products(const Node& node) const {
    if (node.op == OpCode::gemm || is_convolution(node)) return true;
    if (node.op != OpCode::concatenate && node.op != OpCode::bias_add) return false;
    const Node* first = rewriter_.from().producer(node.operands.front());
    return first != nullptr && is_sum_of_products(*first);
  }

  void collect(ValueId id, int layer) {
    const Way way = way_of(id, layer);
    if (way == Way::stored) stored_.insert(id);
    if (way != Way::repeated || !seen_.insert({id, layer}).second) return;
    for (const ValueId operand : rewriter_.from().producer(id)->operands) collect(operand, layer);
  }

  void store(ValueId id, const Tag& tag) {
    b_.tag = tag;
    const ValueId value = rewriter_.map(id);
    const ResultType groups(options_.dtype, options_.group);
    const auto results = b_.emit_typed(OpCode::quantize_groups,
                                       QuantizeAttrs{.target = options_.target}, {value}, {groups});
    groups_[id] = {results[QuantizeGroups::q], results[QuantizeGroups::scale]};
  }

  ValueId dequantized(ValueId id) {
    const auto& [codes, scales] = groups_.at(id);
    return b_.dequantize(codes, scales, rewriter_.from().type(id).dtype);
  }

  void read_again(const Node& node) {
    ValueIds operands;
    for (const ValueId id : node.operands) operands.push_back(again(id, node.tag));
    b_.tag = node.tag;
    rewriter_.replace(node, node.op, node.attrs, operands);
  }

  ValueId again(ValueId id, const Tag& reader) {
    const Way way = way_of(id, reader.layer);
    if (way == Way::kept) return rewriter_.map(id);
    const auto [at, is_new] = again_.try_emplace({id, reader.layer}, kNoValue);
    if (!is_new) return at->second;
    const Graph& from = rewriter_.from();
    const Node& node = *from.producer(id);
    ValueIds operands;
    if (way == Way::repeated)
      for (const ValueId operand : node.operands) operands.push_back(again(operand, reader));
    b_.tag = {.layer = reader.layer,
              .role = Role::backward,
              .origin = node.tag.origin,
              .layer_name = reader.layer_name};
    if (way == Way::stored) return at->second = dequantized(id);
    return at->second = repeated(node, operands);
  }

  // A norm by the statistics that it had.
  ValueId repeated(const Node& node, ValueIds operands) {
    Attrs attrs = node.attrs;
    ResultTypes types = result_types(rewriter_.from(), node);
    if (auto* norm = std::get_if<BatchNormAttrs>(&attrs); norm != nullptr && norm->own) {
      norm->own = false;
      operands[BatchNorm::mean] = rewriter_.map(node.out(BatchNorm::own_mean));
      operands[BatchNorm::variance] = rewriter_.map(node.out(BatchNorm::own_variance));
      types.erase(types.begin() + 1, types.end());
    }
    return b_.emit_typed(node.op, attrs, operands, types)[0];
  }

  struct Stored {
    ValueId codes, scales;
  };

  const StoreGroupsOptions& options_;
  Rewriter rewriter_;
  Builder& b_;
  std::set<ValueId> stored_;                          // old values
  std::set<std::pair<ValueId, int>> seen_;            // old values, by the layer that reads them
  std::map<ValueId, Stored> groups_;                  // by old value
  std::map<std::pair<ValueId, int>, ValueId> again_;  // likewise, and by the layer that reads them
};

}  // namespace

bool stores_pictures(const Graph& graph) {
  const auto is_saving = [](const Node& node) {
    return node.tag.layer >= 0 && op_def(node.op).saves;
  };
  const auto is_picture = [&](const Node& node) {
    const bool is_cut = graph.type(node.results.front()).shape.size() == 4;
    return node.tag.layer >= 0 && (is_cut || is_convolution(node));
  };
  return std::ranges::none_of(graph.nodes, is_saving) &&
         std::ranges::any_of(graph.nodes, is_picture);
}

Graph store_pictures(const Graph& graph, const StoreGroupsOptions& options) {
  CHECK(graph.phase == Phase::typed);
  if (options.forward_reads == ForwardReads::stored) {
    throw Error(ErrorCode::invalid_argument,
                "recipe.forward_reads: expected unquantized for a network whose layers have no "
                "norm or activation of their own (batch norm and ReLU), got stored");
  }
  return PictureStorer(graph, options).run();
}

}  // namespace octet
