#include "plan/joined_launches.h"

#include <algorithm>

#include "plan/kernel_row.h"
#include "plan/views.h"

namespace octet {
namespace {

// Places that a step reads and writes.
class Access {
 public:
  Access(const Plan& plan, const PlanStep& step) {
    const Node& node = plan.graph.node(step.node);
    read_ = places_of(plan, node.operands);
    written_ = places_of(plan, node.results);
    if (step.scratch < 0) return;
    const Buffer& scratch = plan.buffers[step.scratch];
    written_.push_back({scratch.arena, scratch.offset, scratch.bytes});
  }
  bool depends_on(const Access& other) const {
    return any_overlap(written_, other.written_) || any_overlap(written_, other.read_) ||
           any_overlap(read_, other.written_);
  }

 private:
  std::vector<Place> read_, written_;
};

bool may_be_one(const Graph& graph, const PlanStep& step, const PlanStep& next) {
  if (step.chains_next || next.chains_next || !next.chain_kernel.empty()) return false;
  const Node &a = graph.node(step.node), &b = graph.node(next.node);
  return step.kernel.may_join && next.kernel.may_join && step.kernel.row == next.kernel.row &&
         a.op == b.op && step.is_second_phase == next.is_second_phase &&
         step.stream == next.stream && !next.begins_collective_group && next.joins < 0;
}

}  // namespace

std::vector<StepChain> find_chains(const Graph& graph, const ById<NodeId>& order,
                                   const ById<KernelChoice>& kernels, const ById<int>& last_use,
                                   const Target& target) {
  const int n = static_cast<int>(order.size());
  const auto has_kernel = [&](int step) {
    const KernelRow* row = kernels[step].row;
    return row != nullptr && row->chain_kernel != nullptr;
  };
  const auto is_inner = [&](int step, int last) {
    return std::ranges::all_of(graph.node(order[step]).results, [&](ValueId id) {
      return id == kNoValue || last_use[view_root(graph, id)] <= last;
    });
  };
  // The kernel of the steps from `first` to `last`; empty where they are no chain.
  const auto kernel_of = [&](int first, int last) -> std::string_view {
    std::vector<RowStep> steps;
    for (int i = first; i <= last; ++i) {
      const bool has_scratch =
          kernels[i].scratch_bytes > 0 && i < last;  // of the launch: the last's
      if (kernels[i].row == nullptr || has_scratch) return {};
      steps.push_back({{graph, graph.node(order[i]), target}, kernels[i].row, is_inner(i, last)});
    }
    return kernels[last].row->chain_kernel(steps);
  };
  std::vector<StepChain> chains;
  for (int first = 0; first < n;) {
    StepChain found{{first, first}, {}};
    const int longest = std::min(first + static_cast<int>(kMaxChained), n) - 1;
    for (int last = longest; last > first && found.kernel.empty(); --last) {
      if (has_kernel(last)) found = {{first, last}, kernel_of(first, last)};
    }
    if (!found.kernel.empty()) chains.push_back(found);
    first = (found.kernel.empty() ? first : found.last) + 1;
  }
  return chains;
}

std::vector<StepRun> find_scratch_runs(const Graph& graph, const ById<NodeId>& order,
                                       const ById<KernelChoice>& kernels) {
  const auto reads = [&](int step, int made_by) {
    return std::ranges::any_of(graph.node(order[step]).operands, [&](ValueId operand) {
      return operand != kNoValue &&
             std::ranges::any_of(graph.node(order[made_by]).results, [&](ValueId result) {
               return result != kNoValue && view_root(graph, operand) == result;
             });
    });
  };
  const auto goes_on = [&](int first, int step) {
    if (!kernels[step].may_join || kernels[step].row != kernels[first].row) return false;
    for (int i = first; i < step; ++i) {
      if (reads(step, i)) return false;
    }
    return true;
  };
  std::vector<StepRun> runs;
  const int n = static_cast<int>(order.size());
  for (int first = 0; first < n;) {
    int last = first;
    const bool may = kernels[first].may_join && kernels[first].scratch_bytes > 0;
    while (may && last + 1 < n && last + 1 - first < static_cast<int>(kMaxJoined) &&
           goes_on(first, last + 1))
      ++last;
    if (last > first) runs.push_back({first, last});
    first = last + 1;
  }
  return runs;
}

std::vector<bool> find_joined(const Plan& plan) {
  std::vector<bool> joined(plan.steps.size(), false);
  std::vector<Access> run;  // of the steps that are one launch so far
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    Access mine(plan, plan.steps[i]);
    const bool joins =
        i > 0 && run.size() < kMaxJoined &&
        may_be_one(plan.graph, plan.steps[i - 1], plan.steps[i]) &&
        std::ranges::none_of(run, [&](const Access& other) { return mine.depends_on(other); });
    if (i > 0 && plan.steps[i - 1].chains_next) joined[i - 1] = true;
    if (joins) {
      joined[i - 1] = true;
    } else {
      run.clear();
    }
    run.push_back(std::move(mine));
  }
  return joined;
}

}  // namespace octet
