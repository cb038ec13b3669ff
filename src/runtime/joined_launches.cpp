#include "runtime/joined_launches.h"

#include <algorithm>

namespace octet {
namespace {

// Bytes of a lane that a step reads or writes.
struct Range {
  Lane lane;
  int64_t first, end;
  bool meets(const Range& other) const {
    return lane == other.lane && first < other.end && other.first < end;
  }
};

class Touched {
 public:
  Touched(const Plan& plan, const PlanStep& step) {
    const Node& node = plan.graph.node(step.node);
    add(plan, node.operands, read_);
    add(plan, node.results, written_);
  }
  bool depends_on(const Touched& other) const {
    return meet(written_, other.written_) || meet(written_, other.read_) ||
           meet(read_, other.written_);
  }

 private:
  static void add(const Plan& plan, const std::vector<ValueId>& values, std::vector<Range>& to) {
    for (const ValueId id : values) {
      if (id == kNoValue) continue;
      const int index = plan.buffer_of[static_cast<size_t>(id)];
      const Buffer& buffer = plan.buffers[static_cast<size_t>(index)];
      to.push_back({buffer.lane, buffer.offset, buffer.offset + buffer.bytes});
    }
  }
  static bool meet(const std::vector<Range>& a, const std::vector<Range>& b) {
    return std::ranges::any_of(a, [&](const Range& x) {
      return std::ranges::any_of(b, [&](const Range& y) { return x.meets(y); });
    });
  }

  std::vector<Range> read_, written_;
};

bool may_be_one(const PlanStep& step, const PlanStep& next) {
  return step.kernel.may_join && next.kernel.may_join && step.kernel.name == next.kernel.name &&
         step.stream == Stream::compute && next.stream == Stream::compute && next.joins < 0 &&
         step.scratch < 0 && next.scratch < 0;
}

}  // namespace

std::vector<bool> find_joined(const Plan& plan) {
  std::vector<bool> joined(plan.steps.size(), false);
  std::vector<Touched> run;  // of the steps that are one launch so far
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    Touched mine(plan, plan.steps[i]);
    const bool joins =
        i > 0 && may_be_one(plan.steps[i - 1], plan.steps[i]) &&
        std::ranges::none_of(run, [&](const Touched& other) { return mine.depends_on(other); });
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
