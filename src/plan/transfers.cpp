#include "plan/transfers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/op_def.h"
#include "ir/sharding.h"
#include "plan/views.h"

namespace octet {
namespace {

constexpr int64_t kNormBytes = 23 * 8;  // what ranks send of a norm (math/exact_sum.h)

bool is_collective(OpCode op) {
  return op == OpCode::all_gather || op == OpCode::reduce_scatter || op == OpCode::all_reduce ||
         op == OpCode::sharded_norm;
}

class Simulation {
 public:
  Simulation(const Plan& plan, const MachineRates& rates)
      : plan_(plan), rates_(rates), ready_(plan.graph.values.size(), 0) {}

  TransferReport run() {
    for (const PlanStep& step : plan_.steps) {
      const Node& node = plan_.graph.nodes[static_cast<size_t>(step.node)];
      if (sent_bytes(plan_.graph, node) > 0) {
        transfer(node);
      } else {
        compute(node);
      }
    }
    const double end = std::max(compute_free_, link_free_);
    report_.waited += end - compute_free_;
    if (!report_.transfers.empty()) report_.transfers.back().waited += end - compute_free_;
    report_.seconds = end;
    return std::move(report_);
  }

 private:
  double ready(const Node& node) const {
    double at = 0;
    for (const ValueId id : node.operands) {
      if (id != kNoValue) at = std::max(at, ready_[root(id)]);
    }
    return at;
  }
  size_t root(ValueId id) const { return static_cast<size_t>(view_root(plan_.graph, id)); }
  void finish(const Node& node, double at) {
    for (const ValueId id : node.results) {
      if (id != kNoValue) ready_[static_cast<size_t>(id)] = at;
    }
  }

  double seconds_of(const Node& node) const {
    const Cost cost = cost_of(plan_.graph, node);
    const bool is_narrow =
        node.op == OpCode::gemm && is_quantized(plan_.graph.type(node.in(0)).dtype);
    const double rate = is_narrow ? rates_.flops_narrow : rates_.flops_wide;
    return std::max({rates_.step, cost.flops / rate, cost.bytes / rates_.bytes});
  }

  void compute(const Node& node) {
    const double wanted = ready(node), start = std::max(compute_free_, wanted);
    if (start > compute_free_) wait_for(node, start - compute_free_);
    const auto begun = layer_begins_.try_emplace({node.tag.role, node.tag.layer}, start);
    if (begun.second) previous_begin_ = std::exchange(last_begin_, start);
    const double seconds = seconds_of(node);
    compute_free_ = start + seconds;
    report_.compute_seconds += seconds;
    finish(node, compute_free_);
  }
  // The transfer that made the latest operand is the one to blame.
  void wait_for(const Node& node, double seconds) {
    report_.waited += seconds;
    double latest = -1;
    Transfer* cause = nullptr;
    for (const ValueId id : node.operands) {
      const auto it = id == kNoValue ? made_by_.end() : made_by_.find(root(id));
      if (it == made_by_.end() || ready_[root(id)] <= latest) continue;
      latest = ready_[root(id)];
      cause = &report_.transfers[it->second];
    }
    if (cause != nullptr) cause->waited += seconds;
  }

  void transfer(const Node& node) {
    const int64_t bytes = sent_bytes(plan_.graph, node);
    const bool is_parameter =
        node.op == OpCode::all_gather && plan_.graph.input_of(node.in(Unary::x)) != nullptr;
    const double from = is_parameter ? previous_begin_ : ready(node);
    const double seconds = static_cast<double>(bytes) / rates_.link;
    const double start = std::max(link_free_, from);
    link_free_ = start + seconds;
    finish(node, link_free_);
    for (const ValueId result : node.results) {
      if (result != kNoValue) made_by_[static_cast<size_t>(result)] = report_.transfers.size();
    }
    report_.transfers.push_back({.what = what(node),
                                 .bytes = bytes,
                                 .seconds = seconds,
                                 .slack = std::max(0.0, compute_free_ - from),
                                 .waited = 0});
    report_.bytes += bytes;
    report_.link_seconds += seconds;
  }
  static std::string what(const Node& node) {
    const std::string layer = node.tag.layer < 0 ? "" : fmt::format("layer {}, ", node.tag.layer);
    return fmt::format("{} of {}{}", op_def(node.op).name, layer, node.tag.origin);
  }

  const Plan& plan_;
  MachineRates rates_;
  TransferReport report_;
  std::vector<double> ready_;  // by value
  std::map<size_t, size_t> made_by_;
  std::map<std::pair<Role, int>, double> layer_begins_;
  double compute_free_ = 0, link_free_ = 0, last_begin_ = 0, previous_begin_ = 0;
};

}  // namespace

int64_t sent_bytes(const Graph& graph, const Node& node) {
  if (!is_collective(node.op)) return 0;
  const auto& attrs = std::get<CollectiveAttrs>(node.attrs);
  const int64_t others = attrs.ranks - 1;
  if (node.op == OpCode::sharded_norm) return others * kNormBytes;
  const TensorType& x = graph.type(node.in(0));
  if (node.op == OpCode::all_gather) return others * x.n_bytes();
  if (attrs.reduction == RankReduction::max) return others * x.n_bytes();
  const int64_t shard = shard_elems(x.n_elems(), attrs.ranks);
  const int64_t scattered = others * shard * dtype_bytes(x.dtype);
  if (node.op == OpCode::reduce_scatter) return scattered;
  return scattered + others * shard * dtype_bytes(graph.type(node.out(0)).dtype);
}

TransferReport report_transfers(const Plan& plan, const MachineRates& rates) {
  return Simulation(plan, rates).run();
}

}  // namespace octet
