#include "plan/joined_launches.h"

#include <algorithm>

namespace octet {
namespace {

// Places that a step reads and writes.
class Access {
 public:
  Access(const Plan& plan, const PlanStep& step) {
    const Node& node = plan.graph.node(step.node);
    read_ = places_of(plan, node.operands);
    written_ = places_of(plan, node.results);
  }
  bool depends_on(const Access& other) const {
    return any_overlap(written_, other.written_) || any_overlap(written_, other.read_) ||
           any_overlap(read_, other.written_);
  }

 private:
  std::vector<Place> read_, written_;
};

bool may_be_one(const Graph& graph, const PlanStep& step, const PlanStep& next) {
  const Node &a = graph.node(step.node), &b = graph.node(next.node);
  return step.kernel.may_join && next.kernel.may_join && step.kernel.row == next.kernel.row &&
         a.op == b.op && step.is_second_phase == next.is_second_phase &&
         step.stream == next.stream && !next.begins_collective_group && next.joins < 0 &&
         step.scratch < 0 && next.scratch < 0;
}

}  // namespace

std::vector<bool> find_joined(const Plan& plan) {
  std::vector<bool> joined(plan.steps.size(), false);
  std::vector<Access> run;  // of the steps that are one launch so far
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    Access mine(plan, plan.steps[i]);
    const bool joins =
        i > 0 && run.size() < kMaxJoined &&
        may_be_one(plan.graph, plan.steps[i - 1], plan.steps[i]) &&
        std::ranges::none_of(run, [&](const Access& other) { return mine.depends_on(other); });
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
