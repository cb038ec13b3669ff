#include "passes/parallel/shard_updates.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/sharding.h"
#include "passes/parallel/shards.h"
#include "passes/rewrite/rewrite.h"
#include "passes/rewrite/stored_sum.h"

namespace octet {
namespace {

constexpr double kRootOfTwo = 1.4142136;  // rounded up
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_update(const Node& node) {
  return node.op == OpCode::update;
}

// Use of the input; none where the value is no input.
StateUse use_of(const Graph& graph, ValueId id) {
  const GraphInput* input = id == kNoValue ? nullptr : graph.input_of(id);
  return input == nullptr ? StateUse::none : input->key.use;
}

// Rewrites one function's graph; `from` has its inputs cut already.
class Sharder {
 public:
  Sharder(const Graph& graph, const ParallelOptions& options)
      : options_(options), from_(cut(graph)), rewriter_(from_) {
    find_gradients();
    find_normed();
    find_flags();
    if (cuts() && options.shard != ShardStage::parameters) find_deferred();
  }

  Graph run() {
    for (const Node& node : from_.nodes) {
      if (skipped_.contains(node.out(0))) continue;
      if (!is_update(node)) gather_deferred(node);
      if (is_norm_of_gradients(node)) {
        emit_norm(node);
      } else if (is_update(node)) {
        emit_update(node);
      } else if (measures_shards(node)) {
        emit_amax(node);
      } else {
        rewriter_.copy(node);
      }
      if (node.op == OpCode::any_of && flags_.contains(node.out(AnyOf::any)))
        agree(node.out(AnyOf::any), node.tag);
    }
    for (const auto& [id, input] : completed_) rewriter_.set(id, input);
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
      if (is_update(node) && cuts()) cut_states(graph, node);
    }
    for (GraphInput& input : graph.inputs) {
      if (input.key.use != StateUse::accumulator) continue;
      TensorType& type = graph.value(input.value).type;
      type.dtype = Dtype::f32;
      if (cuts()) cut_input(graph, input.value, shard_of(type.shape));
    }
    return graph;
  }

  // States with one element for each of the weight's are cut as the weight is; so are those with
  // one for each group of a quantized state, so that groups stay whole.
  void cut_states(Graph& graph, const Node& node) const {
    const Shape& whole = graph.type(node.in(Update::w)).shape;
    const int64_t n = n_elems(whole), shard = shard_of(whole);
    std::vector<TensorType> quantized;
    for (const ValueId id : node.operands) {
      if (state_def(use_of(graph, id)).ranks == OnRanks::cut && graph.type(id).is_scaled())
        quantized.push_back(graph.type(id));
    }
    for (const ValueId id : node.operands) {
      if (state_def(use_of(graph, id)).ranks != OnRanks::cut || id == node.in(Update::g)) continue;
      const auto of = std::ranges::find(quantized, graph.type(id), scale_type);
      const int64_t group = of == quantized.end() ? 1 : of->granularity.size;
      CHECK(group > 1 || graph.type(id).n_elems() == n);
      if (kShardMultiple % group != 0) {
        throw Error(ErrorCode::invalid_argument,
                    "[shard_updates] optim.group: expected a divisor of {} where moments are cut "
                    "among ranks, got {}",
                    kShardMultiple, group);
      }
      cut_input(graph, id, shard / group);
    }
  }

  // A gradient is what an update reads, or what becomes the next value of an accumulator.
  void find_gradients() {
    is_early_ = options_.shard == ShardStage::gradients || options_.shard == ShardStage::parameters;
    for (const Node& node : from_.nodes) {
      if (is_update(node) && from_.input_of(node.in(Update::g)) == nullptr)
        gradients_[node.in(Update::g)] = kNoValue;
    }
    for (const GraphOutput& output : from_.outputs) {
      if (use_of(from_, output.updates) != StateUse::accumulator) continue;
      is_early_ = true;
      const Node* sum = from_.producer(output.value, OpCode::add);
      const bool adds = sum != nullptr && sum->in(Binary::a) == output.updates;
      const ValueId gradient = adds ? sum->in(Binary::b) : output.value;
      gradients_[gradient] = adds ? output.updates : kNoValue;
      if (adds) skipped_.insert(output.value);
      accumulated_[output.name] = gradient;
    }
    // A gradient that aliases two inputs would have to be two sums.
    if (!shares()) gradients_.clear(), skipped_.clear(), accumulated_.clear();
  }

  // Gradients whose global norm is taken here.
  void find_normed() {
    for (const Node& node : from_.nodes) {
      if (is_norm_of_gradients(node))
        normed_.insert(node.operands.begin() + 1, node.operands.end());
    }
  }

  void find_flags() {
    for (const Node& node : from_.nodes) {
      if (is_update(node)) flags_.insert(node.in(Update::found_nonfinite));
    }
    for (const GraphOutput& output : from_.outputs) {
      if (output.name == "found_nonfinite" || nonfinite_parameter(output.name))
        flags_.insert(output.value);
    }
  }

  // Gathers are deferred of weights with shards of one length whose new value nothing reads here
  // but the maximum of shards: they stay shards, and are gathered by the next function that begins
  // a step, which overwrites accumulators or makes the update itself.
  void find_deferred() {
    std::map<std::string_view, ValueId> weights;
    for (const GraphInput& input : from_.inputs) {
      const TensorType& type = from_.type(input.value);
      const bool is_even = shard_of(type.shape) * options_.ranks == type.n_elems();
      if (input.kind == InputKind::parameter && is_even) weights[input.name] = input.value;
    }
    for (const GraphOutput& output : from_.outputs) {
      const GraphInput* input = from_.input_of(output.updates);
      if (input == nullptr) continue;
      if (weights.contains(input->name) && may_stay_shard(output.value)) {
        left_.insert(output.value);
        deferred_.insert(input->value);
      }
      const auto accumulated = accumulated_.find(output.name);
      if (accumulated == accumulated_.end() || gradients_.at(accumulated->second) != kNoValue)
        continue;
      if (const auto weight = weights.find(input->key.owner); weight != weights.end())
        deferred_.insert(weight->second);
    }
  }
  bool may_stay_shard(ValueId next) const {
    return is_made_of_shards(next) && std::ranges::all_of(from_.nodes, [&](const Node& node) {
             return std::ranges::count(node.operands, next) == 0 || measures_shards(node);
           });
  }

  // Before the first that reads such a weight.
  void gather_deferred(const Node& node) {
    for (const ValueId id : node.operands) {
      if (deferred_.erase(id) == 0) continue;
      builder().tag = node.tag;
      const ValueId input = completed_[id] = rewriter_.map(id);
      rewriter_.set(id, gather_around(builder(), options_, input));
    }
  }
  ValueId next_weight(ValueId next, ValueId shard) {
    if (left_.contains(next)) return shard;
    return builder().emit1(OpCode::all_gather, collective(from_.type(next).shape), {shard});
  }

  // The ranks' sum, this rank's shard of it where gradients are cut; made once. It stands behind
  // the backward, where it is in the way of no fusion; as a node of the update the schedule moves
  // it to where its gradient is ready.
  ValueId reduced(ValueId gradient) {
    const auto [it, is_new] = reduced_.try_emplace(gradient, kNoValue);
    if (!is_new) return it->second;
    const ValueId into = gradients_.at(gradient);
    builder().tag = from_.producer(gradient)->tag;
    if (is_early_) builder().tag.role = Role::update;
    const bool sums_up = !accumulated_.empty();
    const Dtype dtype = sums_up ? Dtype::f32 : from_.type(gradient).dtype;
    const OpCode op = cuts() ? OpCode::reduce_scatter : OpCode::all_reduce;
    ValueIds operands = {rewriter_.map(gradient), rewriter_.map(into), kNoValue};
    const bool is_matrix = from_.type(gradient).shape.size() > 1;
    if (options_.reduce == ReduceFormat::e4m3 && is_matrix) quantize(operands);
    CollectiveAttrs attrs = collective();
    attrs.ranks_a_host = options_.ranks_a_host;
    attrs.squares = cuts() && normed_.contains(gradient);
    const auto results = builder().emit_typed(op, attrs, std::move(operands), {dtype});
    if (attrs.squares) squares_[gradient] = results[Reduce::squares];
    if (cuts() && keeps(gradient)) kept_[gradient] = stored(results[Reduce::y]);
    return it->second = results[Reduce::y];
  }

  // The sum waits for its update as data and scale where one process would keep the gradient so. Of
  // sums that are not cut the norm reads all values: they are rounded by the update, so that all
  // stages have the same bits.
  bool keeps(ValueId gradient) const {
    return shares() && accumulated_.empty() && !options_.strict &&
           is_stored_gradient(from_, gradient);
  }
  // With one scale for all ranks.
  StoredSum stored(ValueId sum) {
    const ValueId own = builder().emit(OpCode::amax, NoAttrs{}, {sum})[AmaxOp::amax];
    const ValueId amax = cuts() ? builder().max_over_ranks(options_.ranks, own) : own;
    return store_sum(builder(), sum, amax);
  }

  // A summand in E4M3 with one scale for all ranks: the smallest power of two, but for rounding,
  // that brings the largest amax to 448 or below, as FP8-LM's own code has it (a product with it is
  // exact, and so are sums of up to 64 ranks). It is NaN where any rank's summand is not finite,
  // and so is the sum then, by which all skip the step.
  void quantize(ValueIds& operands) {
    const QuantizeAttrs e4m3;
    const ValueIds own = builder().emit(OpCode::amax, NoAttrs{}, {operands[0]});
    const ValueId amax = builder().max_over_ranks(options_.ranks, own[AmaxOp::amax]);
    const ValueId bad = builder().max_over_ranks(options_.ranks, own[AmaxOp::nonfinite]);
    // power_of_two gives the nearest one, which is at least 1 / sqrt(2) of its operand.
    const ValueId power =
        builder().unary(OpCode::power_of_two, builder().scaled(amax, kRootOfTwo / e4m3.target));
    operands[Reduce::scale] = builder().select(bad, builder().fill({}, kNan), power);
    operands[Reduce::x] = builder().emit_typed(
        OpCode::quantize, e4m3, {operands[Reduce::x], operands[Reduce::scale]}, {Dtype::e4m3})[0];
  }

  bool is_gradient(ValueId id) const {
    return gradients_.contains(id) || use_of(from_, id) == StateUse::accumulator || !shares();
  }
  bool is_norm_of_gradients(const Node& node) const {
    return node.op == OpCode::global_norm && node.operands.size() > 1 &&
           std::all_of(node.operands.begin() + 1, node.operands.end(), [&](ValueId id) {
             return is_gradient(id) && !from_.type(id).shape.empty();
           });
  }
  ValueId gradient_of(ValueId id) {
    return gradients_.contains(id) ? reduced(id) : rewriter_.map(id);
  }

  void emit_norm(const Node& node) {
    ValueIds operands = {rewriter_.map(node.in(GlobalNorm::clip))};
    for (size_t i = 1; i < node.operands.size(); ++i) {
      const ValueId gradient = gradient_of(node.operands[i]);
      const auto squares = squares_.find(node.operands[i]);
      operands.push_back(squares == squares_.end() ? gradient : squares->second);
    }
    builder().tag = node.tag;
    CollectiveAttrs attrs = collective();
    if (!cuts()) attrs.ranks = 1;  // every rank has all of every sum
    rewriter_.set(node.results, builder().emit(OpCode::sharded_norm, attrs, std::move(operands)));
  }

  void emit_update(const Node& node) {
    const ValueId gradient = gradient_of(node.in(Update::g));
    builder().tag = node.tag;
    ValueIds operands = rewriter_.map(node.operands);
    operands[Update::g] = gradient;
    auto attrs = std::get<UpdateAttrs>(node.attrs);
    if (const ValueId g = node.in(Update::g); keeps(g))
      read_kept(cuts() ? kept_.at(g) : stored(gradient), attrs.rule, operands);
    if (cuts()) {
      operands[Update::w] = own_shard(operands[Update::w]);
      attrs.ranks = options_.ranks, attrs.rank = options_.rank;
    }
    ValueIds results = builder().emit(node.op, attrs, std::move(operands));
    if (cuts()) {
      const ValueId next = node.out(Update::next_w);
      shards_[next] = results[Update::next_w];
      results[Update::next_w] = next_weight(next, results[Update::next_w]);
    }
    rewriter_.set(node.results, results);
  }
  // AdamW reads FP16 data, whose scale joins the factor beside them; other rules read values.
  void read_kept(const StoredSum& kept, UpdateKind rule, ValueIds& operands) {
    if (rule != UpdateKind::adamw) {
      operands[Update::g] = value_of(builder(), kept);
      return;
    }
    operands[Update::g] = kept.data;
    operands[Update::grad_scale] = builder().mul(operands[Update::grad_scale], kept.scale);
  }
  ValueId own_shard(ValueId x) {
    const ShardAttrs own{.ranks = options_.ranks, .rank = options_.rank};
    return builder().emit1(OpCode::take_shard, own, {x});
  }
  // The maximum of new weights is that of their shards, which the updates still have at hand.
  bool measures_shards(const Node& node) const {
    return cuts() && node.op == OpCode::amax &&
           std::ranges::all_of(node.operands, [&](ValueId id) { return is_made_of_shards(id); });
  }
  bool is_made_of_shards(ValueId id) const {
    const Node* node = from_.producer(id);
    return node != nullptr && is_update(*node);
  }
  void emit_amax(const Node& node) {
    builder().tag = node.tag;
    ValueIds operands;
    for (const ValueId id : node.operands) operands.push_back(shards_.at(id));
    rewriter_.set(node.results, builder().emit(node.op, node.attrs, std::move(operands)));
    for (const ValueId id : node.results) {
      if (id != kNoValue && is_read(id)) agree(id, node.tag);
    }
  }

  bool is_read(ValueId id) const {
    return std::ranges::any_of(
               from_.nodes,
               [&](const Node& node) { return std::ranges::count(node.operands, id); }) ||
           std::ranges::any_of(from_.outputs, [&](const GraphOutput& o) { return o.value == id; });
  }

  // One value on all ranks: the largest.
  void agree(ValueId id, const Tag& tag) {
    if (!shares()) return;
    builder().tag = tag;
    rewriter_.set(id, builder().max_over_ranks(options_.ranks, rewriter_.map(id)));
  }

  // Each rank's next value of a statistic is that of its own rows: all keep their mean. As the mean
  // of changes, which is nothing where a step is skipped.
  ValueId mean_over_ranks(ValueId own, ValueId old) {
    builder().tag = Tag{.role = Role::update, .origin = "ranks"};
    CollectiveAttrs attrs = collective();
    attrs.ranks_a_host = options_.ranks_a_host;
    const ValueId sum = builder().emit_typed(OpCode::all_reduce, attrs,
                                             {builder().sub(own, old), kNoValue, kNoValue},
                                             {Dtype::f32})[Reduce::y];
    return builder().add(old, builder().scaled(sum, 1.0 / static_cast<double>(options_.ranks)));
  }

  void emit_outputs() {
    for (const GraphOutput& output : from_.outputs) {
      ValueId value = kNoValue;
      if (const auto it = accumulated_.find(output.name); it != accumulated_.end()) {
        value = reduced(it->second);
      } else {
        if (state_def(use_of(from_, output.updates)).ranks == OnRanks::agreed)
          agree(output.value, Tag{.role = Role::update, .origin = "ranks"});
        value = rewriter_.map(output.value);
        if (shares() && is_next_statistic(from_, output))
          value = mean_over_ranks(value, rewriter_.map(output.updates));
      }
      builder().output(output.name, value, rewriter_.map(output.updates));
    }
  }

  ParallelOptions options_;
  std::set<ValueId> skipped_, flags_;  // what is made otherwise; flags of updates
  Graph from_;
  Rewriter rewriter_;
  bool is_early_ = false;                       // reduced as soon as they are made
  std::map<ValueId, ValueId> gradients_;        // -> what their sum begins with
  std::map<ValueId, ValueId> reduced_;          // -> new value
  std::set<ValueId> normed_;                    // whose norm is taken
  std::map<ValueId, ValueId> squares_;          // -> of the new value
  std::map<ValueId, StoredSum> kept_;           // the new value in few bytes
  std::set<ValueId> left_, deferred_;           // new weights that stay shards; to be gathered
  std::map<ValueId, ValueId> completed_;        // weight, gathered -> the input that it was
  std::map<ValueId, ValueId> shards_;           // new weight -> this rank's shard of it
  std::map<std::string, ValueId> accumulated_;  // output -> gradient
};

}  // namespace

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
