#include "passes/parallel/shard_updates.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/sharding.h"
#include "passes/rewrite.h"

namespace octet {
namespace {

size_t index(ValueId id) {
  return static_cast<size_t>(id);
}

void cut_input(Graph& graph, ValueId id, int64_t elements) {
  const auto input = std::ranges::find(graph.inputs, id, &GraphInput::value);
  CHECK(input != graph.inputs.end());
  if (input->whole) return;
  Shape& shape = graph.values[index(id)].type.shape;
  input->whole = shape;
  shape = {elements};
}

bool is_update(const Node& node) {
  return node.op == OpCode::adamw_step;
}

// What the input is for; none where the value is no input.
StateUse use_of(const Graph& graph, ValueId id) {
  const GraphInput* input = id == kNoValue ? nullptr : graph.input_of(id);
  return input == nullptr ? StateUse::none : input->key.use;
}

ValueId max_over_ranks(Builder& builder, int64_t ranks, ValueId x) {
  const CollectiveAttrs attrs{.ranks = ranks, .reduction = RankReduction::max, .shape = {}};
  return builder.emit1(OpCode::all_reduce, attrs, {x});
}

// Rewrites one function's graph; `from` has its inputs cut already.
class Sharder {
 public:
  Sharder(const Graph& graph, const ParallelOptions& options)
      : options_(options), from_(cut(graph)), rewriter_(from_) {
    find_gradients();
    find_flags();
  }

  Graph run() {
    for (const Node& node : from_.nodes) {
      if (skipped_.contains(node.out(0))) continue;
      if (node.op == OpCode::global_norm && is_of_gradients(node)) {
        emit_norm(node);
      } else if (is_update(node)) {
        emit_update(node);
      } else if (node.op == OpCode::amax && measures_shards(node)) {
        emit_amax(node);
      } else {
        rewriter_.copy(node);
      }
      if (node.op == OpCode::any_of && flags_.contains(node.out(AnyOf::any)))
        agree(node.out(AnyOf::any), node.tag);
    }
    emit_outputs();
    return rewriter_.finish_without_outputs();
  }

 private:
  bool shares() const { return options_.ranks > 1; }
  bool cuts() const { return shares() && options_.shard != ShardStage::none; }
  int64_t shard_of(const Shape& whole) const { return shard_elems(n_elems(whole), options_.ranks); }
  Builder& builder() { return rewriter_.builder(); }
  CollectiveAttrs collective(Shape shape = {}) const {
    return {.ranks = options_.ranks, .shape = std::move(shape)};
  }

  // States of updates are shards; accumulators are f32, and shards too.
  Graph cut(Graph graph) {
    if (!shares()) return graph;
    for (const Node& node : graph.nodes) {
      if (!is_update(node) || !cuts()) continue;
      using S = AdamwStep;
      const int64_t shard = shard_of(graph.type(node.in(S::w)).shape);
      for (const SlotId slot : {S::m, S::v, S::master}) {
        if (node.in(slot) != kNoValue) cut_input(graph, node.in(slot), shard);
      }
      const int64_t group = std::get<AdamwAttrs>(node.attrs).group;
      for (const SlotId slot : {S::m_meta, S::v_meta}) {
        if (node.in(slot) == kNoValue) continue;
        if (kShardMultiple % group != 0) {
          throw Error(ErrorCode::invalid_argument,
                      "[shard_updates] optim.group: expected a divisor of {} where moments are cut "
                      "among ranks, got {}",
                      kShardMultiple, group);
        }
        cut_input(graph, node.in(slot), shard / group);
      }
    }
    for (GraphInput& input : graph.inputs) {
      if (input.key.use != StateUse::accumulator) continue;
      TensorType& type = graph.values[index(input.value)].type;
      type.dtype = Dtype::f32;
      if (cuts()) cut_input(graph, input.value, shard_of(type.shape));
    }
    return graph;
  }

  // A gradient is what an update reads, or what becomes the next value of an accumulator.
  void find_gradients() {
    is_early_ = options_.shard == ShardStage::gradients || options_.shard == ShardStage::parameters;
    for (const Node& node : from_.nodes) {
      if (is_update(node) && from_.input_of(node.in(AdamwStep::g)) == nullptr)
        gradients_[node.in(AdamwStep::g)] = kNoValue;
    }
    for (const GraphOutput& output : from_.outputs) {
      if (use_of(from_, output.updates) != StateUse::accumulator) continue;
      is_early_ = true;
      const Node& last = from_.nodes[index(from_.values[index(output.value)].producer)];
      const bool adds = last.op == OpCode::add && last.in(Binary::a) == output.updates;
      const ValueId gradient = adds ? last.in(Binary::b) : output.value;
      gradients_[gradient] = adds ? output.updates : kNoValue;
      if (adds) skipped_.insert(output.value);
      accumulated_[output.name] = gradient;
    }
    // Two homes of one gradient would have to be two sums.
    if (!shares()) gradients_.clear(), skipped_.clear(), accumulated_.clear();
  }

  void find_flags() {
    for (const Node& node : from_.nodes) {
      if (is_update(node)) flags_.insert(node.in(AdamwStep::found_nonfinite));
    }
    for (const GraphOutput& output : from_.outputs) {
      if (output.name == "found_nonfinite" || nonfinite_parameter(output.name))
        flags_.insert(output.value);
    }
  }

  // The ranks' sum, this rank's shard of it where gradients are cut; made once. It stands behind
  // the backward, where it is in the way of no fusion; as a node of the update the schedule moves
  // it to where its gradient is ready.
  ValueId reduced(ValueId gradient) {
    const auto [it, is_new] = reduced_.try_emplace(gradient, kNoValue);
    if (!is_new) return it->second;
    const ValueId into = gradients_.at(gradient);
    const NodeId producer = from_.values[index(gradient)].producer;
    builder().tag = from_.nodes[index(producer)].tag;
    if (is_early_) builder().tag.role = Role::update;
    const bool sums_up = !accumulated_.empty();
    const Dtype dtype[] = {sums_up ? Dtype::f32 : from_.type(gradient).dtype};
    const OpCode op = cuts() ? OpCode::reduce_scatter : OpCode::all_reduce;
    std::vector<ValueId> operands = {rewriter_.map(gradient)};
    if (into != kNoValue) operands.push_back(rewriter_.map(into));
    return it->second = builder().emit_typed(op, collective(), std::move(operands), dtype)[0];
  }

  bool is_gradient(ValueId id) const {
    return gradients_.contains(id) || use_of(from_, id) == StateUse::accumulator || !shares();
  }
  bool is_of_gradients(const Node& node) const {
    return node.operands.size() > 1 &&
           std::all_of(node.operands.begin() + 1, node.operands.end(), [&](ValueId id) {
             return is_gradient(id) && !from_.type(id).shape.empty();
           });
  }
  ValueId gradient_of(ValueId id) {
    return gradients_.contains(id) ? reduced(id) : rewriter_.map(id);
  }

  void emit_norm(const Node& node) {
    std::vector<ValueId> operands = {rewriter_.map(node.in(GlobalNorm::clip))};
    for (size_t i = 1; i < node.operands.size(); ++i)
      operands.push_back(gradient_of(node.operands[i]));
    builder().tag = node.tag;
    CollectiveAttrs attrs = collective();
    if (!cuts()) attrs.ranks = 1;  // every rank has all of every sum
    rewriter_.set(node.results, builder().emit(OpCode::sharded_norm, attrs, std::move(operands)));
  }

  void emit_update(const Node& node) {
    using S = AdamwStep;
    const ValueId gradient = gradient_of(node.in(S::g));
    builder().tag = node.tag;
    std::vector<ValueId> operands = rewriter_.map(node.operands);
    operands[S::g] = gradient;
    if (!cuts())
      return rewriter_.set(node.results, builder().emit(node.op, node.attrs, std::move(operands)));
    const Shape& whole = from_.type(node.in(S::w)).shape;
    const ShardAttrs own{.ranks = options_.ranks, .rank = options_.rank};
    operands[S::w] = builder().emit1(OpCode::take_shard, own, {operands[S::w]});
    auto attrs = std::get<AdamwAttrs>(node.attrs);
    attrs.first = options_.rank * shard_of(whole);
    std::vector<ValueId> results = builder().emit(node.op, attrs, std::move(operands));
    shards_[node.out(S::next_w)] = results[S::next_w];
    results[S::next_w] =
        builder().emit1(OpCode::all_gather, collective(whole), {results[S::next_w]});
    results.resize(node.results.size(), kNoValue);
    rewriter_.set(node.results, results);
  }

  // The maximum of new weights is that of their shards, which the updates still have at hand.
  bool measures_shards(const Node& node) const {
    return std::ranges::all_of(node.operands, [&](ValueId id) { return shards_.contains(id); });
  }
  void emit_amax(const Node& node) {
    builder().tag = node.tag;
    std::vector<ValueId> operands;
    for (const ValueId id : node.operands) operands.push_back(shards_.at(id));
    rewriter_.set(node.results, builder().emit(node.op, node.attrs, std::move(operands)));
    for (const ValueId id : node.results) {
      if (id != kNoValue) agree(id, node.tag);
    }
  }

  // One value on all ranks: the largest.
  void agree(ValueId id, const Tag& tag) {
    if (!shares()) return;
    builder().tag = tag;
    rewriter_.set(id, max_over_ranks(builder(), options_.ranks, rewriter_.map(id)));
  }

  void emit_outputs() {
    for (const GraphOutput& output : from_.outputs) {
      ValueId value = kNoValue;
      if (const auto it = accumulated_.find(output.name); it != accumulated_.end()) {
        value = reduced(it->second);
      } else {
        if (use_of(from_, output.updates) == StateUse::amax_history)
          agree(output.value, Tag{.role = Role::update, .origin = "ranks"});
        value = rewriter_.map(output.value);
      }
      builder().output(output.name, value, rewriter_.map(output.updates));
    }
  }

  ParallelOptions options_;
  Graph from_;
  Rewriter rewriter_;
  bool is_early_ = false;                       // reduced as soon as they are made
  std::map<ValueId, ValueId> gradients_;        // -> what their sum begins with
  std::map<ValueId, ValueId> reduced_;          // -> new value
  std::map<ValueId, ValueId> shards_;           // new weight -> this rank's shard of it
  std::set<ValueId> skipped_, flags_;           // sums that a reduction takes over; of updates
  std::map<std::string, ValueId> accumulated_;  // output -> gradient
};

// Gives the readers of cut parameters what they need: the whole, or quantized data of the whole.
class Gatherer {
 public:
  Gatherer(const Graph& from, const std::map<ValueId, Shape>& wholes,
           const ParallelOptions& options)
      : from_(from), wholes_(wholes), options_(options), rewriter_(from) {
    if (options.gather == GatherFormat::codes) find_quantized();
  }

  Graph run() {
    for (const Node& node : from_.nodes) {
      if (node.op == OpCode::take_shard && wholes_.contains(node.in(Unary::x))) {
        rewriter_.set(node.out(Unary::y), rewriter_.map(node.in(Unary::x)));
      } else if (is_new_weight(node)) {
        new_shards_[node.out(Unary::y)] = rewriter_.map(node.in(Unary::x));
      } else if (node.op == OpCode::amax && reads_shard(node)) {
        measure(node);
      } else if (node.op == OpCode::quantize && reads_shard(node)) {
        quantize(node);
      } else {
        copy_with_wholes(node);
      }
    }
    for (const GraphOutput& output : from_.outputs) {
      const auto shard = new_shards_.find(output.value);
      const ValueId value =
          shard == new_shards_.end() ? rewriter_.map(output.value) : shard->second;
      builder().output(output.name, value, rewriter_.map(output.updates));
    }
    return rewriter_.finish_without_outputs();
  }

 private:
  Builder& builder() { return rewriter_.builder(); }

  // The next value of a parameter, gathered: from here on a shard of it is all that there is.
  bool is_new_weight(const Node& node) const {
    return node.op == OpCode::all_gather &&
           std::ranges::any_of(from_.outputs, [&](const GraphOutput& output) {
             return output.value == node.out(Unary::y) && wholes_.contains(output.updates);
           });
  }

  // Parameters that nothing reads but what measures or quantizes a whole tensor, row by row.
  void find_quantized() {
    for (const auto& [id, whole] : wholes_) quantized_.insert(id);
    for (const Node& node : from_.nodes) {
      if (node.op == OpCode::take_shard || node.op == OpCode::amax) continue;
      const auto* attrs = std::get_if<QuantizeAttrs>(&node.attrs);
      const bool is_plain = node.op == OpCode::quantize && attrs->group == 0 && !attrs->transposed;
      if (is_plain) continue;
      for (const ValueId id : node.operands) quantized_.erase(id);
    }
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
        rewriter_.set(id, max_over_ranks(builder(), options_.ranks, rewriter_.map(id)));
    }
  }

  void quantize(const Node& node) {
    builder().tag = node.tag;
    const ValueId shard =
        builder().emit1(OpCode::quantize, node.attrs, rewriter_.map(node.operands));
    rewriter_.set(node.out(Quantize::q), gather(shard, wholes_.at(node.in(Quantize::x))));
  }

  const Graph& from_;
  const std::map<ValueId, Shape>& wholes_;
  ParallelOptions options_;
  Rewriter rewriter_;
  std::set<ValueId> quantized_;
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

Graph shard_updates(const Graph& graph, const ParallelOptions& options) {
  if (!options.is_active()) return graph;
  return Sharder(graph, options).run();
}

Graph parallelize(const Graph& graph, const ParallelOptions& options) {
  if (!options.is_active()) return graph;
  Graph result = gather_parameters(shard_updates(graph, options), options);
  result.phase = Phase::sharded;
  return result;
}

}  // namespace octet
