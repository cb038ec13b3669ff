#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "ir/sharding.h"
#include "passes/parallel/shard_updates.h"
#include "passes/parallel/shards.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

// Gives the readers of cut parameters what they need: the whole, or quantized data of the whole.
class Gatherer {
 public:
  Gatherer(const Graph& from, const std::map<ValueId, Shape>& wholes,
           const ParallelOptions& options)
      : from_(from), wholes_(wholes), options_(options), rewriter_(from) {
    if (options.gather == GatherFormat::codes) find_quantized();
    for (const Node& node : from.nodes) read_.insert(node.operands.begin(), node.operands.end());
    for (const GraphOutput& output : from.outputs) {
      (wholes.contains(output.updates) ? next_ : read_).insert(output.value);
    }
  }

  Graph run() {
    for (const Node& node : from_.nodes) {
      if (node.op == OpCode::take_shard && wholes_.contains(node.in(Unary::x))) {
        rewriter_.set(node.out(Unary::y), rewriter_.map(node.in(Unary::x)));
      } else if (is_new_weight(node)) {
        new_shards_[node.out(Unary::y)] = rewriter_.map(node.in(Unary::x));
        if (read_.contains(node.out(Unary::y))) copy_with_wholes(node);
      } else if (node.op == OpCode::amax && reads_shard(node)) {
        measure(node);
      } else if (node.op == OpCode::quantize && reads_shard(node)) {
        quantize(node);
      } else {
        copy_with_wholes(node);
      }
    }
    for (const GraphOutput& output : from_.outputs) {
      const bool is_next = wholes_.contains(output.updates);
      const auto shard = is_next ? new_shards_.find(output.value) : new_shards_.end();
      const ValueId value =
          shard == new_shards_.end() ? rewriter_.map(output.value) : shard->second;
      const ValueId input = rewriter_.map(output.updates);
      if (is_next) check_is_shard(output.name, builder().type(value), builder().type(input));
      builder().output(output.name, value, input);
    }
    return rewriter_.finish_without_outputs();
  }

 private:
  Builder& builder() { return rewriter_.builder(); }

  // The next value of a parameter, gathered: from here on a shard of it is all that there is.
  bool is_new_weight(const Node& node) const {
    return op_def(node.op).gathers && next_.contains(node.out(Unary::y));
  }

  void check_is_shard(std::string_view name, const TensorType& type,
                      const TensorType& shard) const {
    if (type.shape == shard.shape) return;
    throw Error(ErrorCode::invalid_argument,
                "[gather_parameters] '{}': expected {}, as shard_updates makes it for {} ranks, "
                "got {}",
                name, to_string(shard), options_.ranks, to_string(type));
  }

  // Parameters that nothing reads but what measures or quantizes a whole tensor, row by row.
  void find_quantized() {
    for (const auto& [id, whole] : wholes_) quantized_.insert(id);
    for (const Node& node : from_.nodes) {
      if (node.op == OpCode::take_shard || node.op == OpCode::amax) continue;
      if (node.op == OpCode::quantize && keeps_elements(node)) continue;
      for (const ValueId id : node.operands) quantized_.erase(id);
    }
  }
  // One scale, and nothing but the elements, as they lie or transposed.
  bool keeps_elements(const Node& node) const {
    const auto whole = wholes_.find(node.in(Quantize::x));
    return whole != wholes_.end() &&
           from_.type(node.out(Quantize::q)).n_stored() == n_elems(whole->second);
  }
  bool reads_shard(const Node& node) const {
    return std::ranges::any_of(node.operands, [&](ValueId id) { return quantized_.contains(id); });
  }

  ValueId gather(ValueId shard, const Shape& whole) {
    return builder().emit1(OpCode::all_gather,
                           CollectiveAttrs{.ranks = options_.ranks, .shape = whole}, {shard});
  }

  void copy_with_wholes(const Node& node) {
    std::map<ValueId, ValueId> shards;
    for (const ValueId id : node.operands) {
      if (!wholes_.contains(id) || shards.contains(id)) continue;
      const auto [it, is_new] = gathered_.try_emplace({id, node.tag.role}, kNoValue);
      builder().tag = node.tag;
      if (is_new) it->second = gather(rewriter_.map(id), wholes_.at(id));
      shards[id] = rewriter_.map(id);
      rewriter_.set(id, it->second);
    }
    rewriter_.copy(node);
    for (const auto& [id, shard] : shards) rewriter_.set(id, shard);
  }

  // The maximum of the shards, and whether any holds what is not finite.
  void measure(const Node& node) {
    for (const ValueId id : node.operands) {
      if (wholes_.contains(id) && !quantized_.contains(id)) return copy_with_wholes(node);
    }
    rewriter_.copy(node);
    for (const ValueId id : node.results) {
      if (id != kNoValue)
        rewriter_.set(id, builder().max_over_ranks(options_.ranks, rewriter_.map(id)));
    }
  }

  // Once forward and once backward, whatever layouts are read there: what was gathered is
  // transposed.
  void quantize(const Node& node) {
    builder().tag = node.tag;
    const TensorType& type = from_.type(node.out(Quantize::q));
    const ValueIds operands = rewriter_.map(node.operands);
    const auto known = std::ranges::find_if(quantized_wholes_, [&](const QuantizedWhole& q) {
      return q.operands == operands && q.attrs == node.attrs && q.role == node.tag.role &&
             builder().type(q.whole).dtype == type.dtype;
    });
    ValueId whole = known == quantized_wholes_.end() ? kNoValue : known->whole;
    if (whole == kNoValue) {
      const auto shard = builder().emit_typed(OpCode::quantize, node.attrs, operands, {type.dtype});
      whole = gather(shard[0], wholes_.at(node.in(Quantize::x)));
      quantized_wholes_.push_back({operands, node.attrs, node.tag.role, whole});
    }
    rewriter_.set(node.out(Quantize::q),
                  type.layout.transposed ? builder().laid_out(whole, true) : whole);
  }

  const Graph& from_;
  const std::map<ValueId, Shape>& wholes_;
  ParallelOptions options_;
  Rewriter rewriter_;
  struct QuantizedWhole {
    ValueIds operands;
    Attrs attrs;
    Role role = Role::forward;
    ValueId whole = kNoValue;
  };
  std::set<ValueId> next_, read_;  // values of parameters to come; what has another reader
  std::set<ValueId> quantized_;
  std::vector<QuantizedWhole> quantized_wholes_;
  std::map<std::pair<ValueId, Role>, ValueId> gathered_;
  std::map<ValueId, ValueId> new_shards_;  // of gathered next values
};

}  // namespace

Graph gather_parameters(const Graph& graph, const ParallelOptions& options) {
  if (options.ranks == 1 || options.shard != ShardStage::parameters) return graph;
  Graph from = graph;
  std::map<ValueId, Shape> wholes;
  for (const GraphInput& input : graph.inputs) {
    if (input.kind != InputKind::parameter) continue;
    wholes[input.value] = graph.type(input.value).shape;
    cut_input(from, input.value, shard_elems(graph.type(input.value).n_elems(), options.ranks));
  }
  return Gatherer(from, wholes, options).run();
}

}  // namespace octet
