#include "plan/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ir/op_def.h"
#include "ir/sharding.h"
#include "plan/joined_launches.h"
#include "plan/streams.h"

namespace octet {
namespace {

constexpr int64_t kNormBytes = 23 * 8;  // what ranks send of a norm (math/exact_sum.h)

bool is_sum(const Node& node) {
  const OpDef& def = op_def(node.op);
  const bool is_of_all =
      def.sums && std::get<CollectiveAttrs>(node.attrs).reduction == RankReduction::sum;
  return def.scatters || is_of_all;
}

class Simulation {
 public:
  Simulation(const Plan& plan, const MachineRates& rates)
      : plan_(plan), rates_(rates), joins_next_(find_joined(plan)), ended_(plan.steps.size(), 0) {}

  TransferReport run() {
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const int joined = plan_.steps[i].joins;
      if (joined >= 0) wait_for(joined, ended_[joined]);
      plan_.steps[i].stream == Stream::transfer ? transfer(i) : compute(i);
    }
    wait_for(static_cast<int>(plan_.steps.size()), link_free_);
    report_.seconds = compute_free_;
    return std::move(report_);
  }

 private:
  const Node& node(size_t step) const { return plan_.graph.node(plan_.steps[step].node); }
  double seconds_of(const Node& node) const {
    const Cost cost = cost_of(plan_.graph, node);
    const bool is_narrow = std::holds_alternative<GemmAttrs>(node.attrs) &&
                           is_quantized(plan_.graph.type(node.in(Gemm::a)).dtype);
    const bool is_attention = std::holds_alternative<AttentionAttrs>(node.attrs);
    const double rate = is_attention ? rates_.flops_attention
                        : is_narrow  ? rates_.flops_8_bit
                                     : rates_.flops_bf16;
    return std::max({rates_.step, cost.flops / rate, cost.bytes / rates_.bytes});
  }

  void compute(size_t step) {
    const double seconds = seconds_of(node(step));
    ended_[step] = compute_free_ += seconds;
    report_.compute_seconds += seconds;
  }
  // Computing waits until `at` for the transfers up to `step`; the last of them is to blame.
  void wait_for(int step, double at) {
    for (; settled_ < under_way_.size() && under_way_[settled_].step <= step; ++settled_) {
      Transfer& one = report_.transfers[settled_];
      one.slack = std::max(0.0, compute_free_ - under_way_[settled_].begun);
    }
    if (at <= compute_free_) return;
    report_.waited += at - compute_free_;
    if (settled_ > 0) report_.transfers[settled_ - 1].waited += at - compute_free_;
    compute_free_ = at;
  }

  void transfer(size_t step) {
    const SentBytes bytes = sent_bytes(plan_.graph, node(step), rates_);
    const double within = static_cast<double>(bytes.within) / rates_.link;
    const double between = static_cast<double>(bytes.between) / rates_.network;
    const PlanStep& one = plan_.steps[step];
    const double barriers =
        rates_.barrier * (one.begins_collective_group + one.ends_collective_group);
    const double data = rates_.has_levels ? within + between + level_seconds(node(step))
                                          : std::max(within, between);
    const bool is_part = step > 0 && joins_next_[step - 1];  // of the launch before
    const double seconds = (is_part ? 0 : rates_.start) + data + barriers;
    // A run begins when all before it has been computed, which is where computing stands now.
    const double begun = std::max(link_free_, one.begins_collective_group ? compute_free_ : 0.0);
    ended_[step] = link_free_ = begun + seconds;
    under_way_.push_back({.step = static_cast<int>(step), .begun = begun});
    report_.transfers.push_back({.what = what(node(step)),
                                 .bytes = bytes,
                                 .seconds = seconds,
                                 .queued = std::max(0.0, begun - compute_free_)});
    report_.bytes.within += bytes.within;
    report_.bytes.between += bytes.between;
    report_.runs += one.begins_collective_group ? 1 : 0;
    report_.link_seconds += seconds;
    report_.within_seconds += within;
    report_.between_seconds += between;
  }
  // Seconds of two levels, beside what flows: a second start, a barrier of the host between them
  // or, of sums, adding up the host's parts.
  double level_seconds(const Node& node) const {
    const auto& attrs = std::get<CollectiveAttrs>(node.attrs);
    if (attrs.ranks == 1) return 0;
    const bool is_max = op_def(node.op).sums && !is_sum(node);
    const bool has_barrier = !op_def(node.op).scatters && !is_max;
    const double start = rates_.start + (has_barrier ? rates_.barrier : 0);
    if (attrs.ranks_a_host == 0) return start;
    const TensorType& x = plan_.graph.type(node.in(0));
    const int64_t hosts = attrs.ranks / attrs.ranks_a_host;
    const int64_t of_hosts = hosts * shard_elems(x.n_elems(), attrs.ranks);
    const int64_t n_bytes =
        bytes_of(x.dtype, attrs.ranks_a_host * of_hosts) + bytes_of(Dtype::f32, of_hosts);
    return start + static_cast<double>(n_bytes) / rates_.bytes;
  }
  static std::string what(const Node& node) {
    const std::string layer = node.tag.layer < 0 ? "" : layer_text(node.tag) + ", ";
    return fmt::format("{} of {}{}", op_def(node.op).name, layer, node.tag.origin);
  }

  const Plan& plan_;
  MachineRates rates_;
  TransferReport report_;
  std::vector<bool> joins_next_;  // by step
  ById<double> ended_;            // by step
  struct UnderWay {
    int step = 0;
    double begun = 0;
  };
  std::vector<UnderWay> under_way_;  // as the report's transfers
  size_t settled_ = 0;               // of them: waited for
  double compute_free_ = 0, link_free_ = 0;
};

}  // namespace

namespace {

// To each other rank, of one level; `summand`: of the type of what a sum adds up.
int64_t bytes_to_each(const Graph& graph, const Node& node, Dtype summand) {
  if (node.op == OpCode::sharded_norm) return kNormBytes;
  const TensorType& x = graph.type(node.in(0));
  if (!is_sum(node)) return x.n_bytes();
  const int64_t shard = shard_elems(x.n_elems(), std::get<CollectiveAttrs>(node.attrs).ranks);
  const int64_t scattered = bytes_of(summand, shard);
  if (op_def(node.op).scatters) return scattered;
  return scattered + bytes_of(graph.type(node.out(0)).dtype, shard);
}

}  // namespace

SentBytes sent_bytes(const Graph& graph, const Node& node, const MachineRates& rates) {
  if (!is_collective(node.op)) return {};
  const int64_t ranks = std::get<CollectiveAttrs>(node.attrs).ranks;
  const int64_t a_host = rates.ranks_a_host == 0 ? ranks : std::min(rates.ranks_a_host, ranks);
  const Dtype own = graph.type(node.in(0)).dtype;
  const int64_t each = bytes_to_each(graph, node, own);
  if (!rates.has_levels || ranks == 1)
    return {.within = (a_host - 1) * each, .between = (ranks - a_host) * each};
  // A rank has for its peers what goes to the hosts, or has come from them: whole shards.
  const int64_t hosts = ranks / a_host;
  const bool has_shards = is_sum(node) || op_def(node.op).gathers;
  return {.within = (a_host - 1) * each * (has_shards ? hosts : 1),
          .between = (hosts - 1) * bytes_to_each(graph, node, Dtype::f32)};
}

std::string_view words(WaitReason reason) {
  switch (reason) {
    case WaitReason::none:
      return "";
    case WaitReason::needed_at_once:
      return "needed at once";
    case WaitReason::longer_than_computing:
      return "longer than the computing beside it";
    case WaitReason::behind_others:
      return "behind other transfers";
  }
  return "";
}

WaitReason Transfer::reason() const {
  if (waited <= 0) return WaitReason::none;
  if (queued > waited / 2) return WaitReason::behind_others;
  return slack < seconds / 10 ? WaitReason::needed_at_once : WaitReason::longer_than_computing;
}

TransferReport report_transfers(const Plan& plan, const MachineRates& rates) {
  return Simulation(plan, rates).run();
}

}  // namespace octet
