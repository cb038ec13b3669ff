#include "plan/streams.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "plan/plan.h"
#include "plan/updates.h"
#include "plan/views.h"

namespace octet {
namespace {

// Which input a value is the next value of, or this rank's shard of it, by root.
std::map<ValueId, ValueId> aliased_inputs_of(const Graph& graph) {
  std::map<ValueId, ValueId> aliased_inputs;
  for (const GraphOutput& output : graph.outputs) {
    if (output.updates != kNoValue) aliased_inputs[view_root(graph, output.value)] = output.updates;
    if (const ValueId shard = new_shard(graph, output); shard != kNoValue)
      aliased_inputs[shard] = output.updates;
  }
  return aliased_inputs;
}

// Collectives that stand next to each other in this order and read nothing that collectives made:
// by step which run it belongs to, -1 for what computes, and by run the step behind it.
struct Runs {
  ById<int> of, ends;
};

Runs find_runs(const Graph& graph, const ById<NodeId>& order) {
  const std::map<ValueId, ValueId> aliased_inputs = aliased_inputs_of(graph);
  Runs runs{.of = ById<int>(order.size(), -1), .ends = {}};
  std::set<ValueId> written, read;  // so far, and by the run so far; by root
  for (size_t step = 0; step < order.size(); ++step) {
    const Node& node = graph.node(order[step]);
    if (!is_collective(node.op)) continue;
    bool needs_run = false;
    std::set<ValueId> reads, writes;
    for (const ValueId id : node.operands) {
      if (id != kNoValue) reads.insert(view_root(graph, id));
    }
    for (const ValueId id : node.results) {
      if (id != kNoValue) writes.insert(view_root(graph, id));
      if (const auto aliased = aliased_inputs.find(id); aliased != aliased_inputs.end())
        writes.insert(aliased->second);
    }
    for (const ValueId id : reads) needs_run = needs_run || written.contains(id);
    for (const ValueId id : writes) needs_run = needs_run || read.contains(id);
    if (needs_run || step == 0 || runs.of[step - 1] < 0) {
      runs.ends.push_back(0);
      read.clear();
    }
    read.merge(reads), written.merge(writes);
    runs.of[step] = static_cast<int>(runs.ends.size()) - 1;
    runs.ends.back() = static_cast<int>(step) + 1;
  }
  return runs;
}

// Places that a step reads and writes.
struct Touched {
  std::vector<Place> reads, writes;
};

Touched touched_by(const Plan& plan, const PlanStep& step) {
  const Node& node = plan.graph.node(step.node);
  Touched touched{places_of(plan, node.operands), places_of(plan, node.results)};
  if (gathers_in_place(node)) {  // all but its operand
    const Place all = touched.writes[0], own = touched.reads[0];
    touched.writes = {{all.arena, all.offset, own.offset - all.offset},
                      {all.arena, own.end(), all.end() - own.end()}};
  }
  if (step.scratch >= 0) {
    const Buffer& scratch = plan.buffers[step.scratch];
    touched.writes.push_back({scratch.arena, scratch.offset, scratch.bytes});
  }
  return touched;
}

}  // namespace

ById<int> ends_of_use(const Graph& graph, const ById<NodeId>& order) {
  const Runs runs = find_runs(graph, order);
  const int n = static_cast<int>(order.size());
  ById<int> ends(order.size());
  std::iota(ends.begin(), ends.end(), 0);
  if (runs.ends.empty()) return ends;
  const std::map<ValueId, ValueId> aliased_inputs = aliased_inputs_of(graph);
  // Behind the step that is looked at: who reads a value first, what computing writes it first.
  std::map<ValueId, int> first_read, first_write;
  const auto first = [&](const std::map<ValueId, int>& steps, ValueId id) {
    const auto it = id == kNoValue ? steps.end() : steps.find(view_root(graph, id));
    return it == steps.end() ? n : it->second;
  };
  int join = n;  // the first step that waits for a collective behind the one that is looked at
  for (int step = n - 1; step >= 0; --step) {
    const Node& node = graph.node(order[step]);
    const int run = runs.of[step];
    if (run >= 0) {
      if (run + 2 < static_cast<int>(runs.ends.size())) join = std::min(join, runs.ends[run + 2]);
      for (const ValueId id : node.results) join = std::min(join, first(first_read, id));
      for (const ValueId id : node.operands) join = std::min(join, first(first_write, id));
      ends[step] = join - 1;
    } else {
      for (const ValueId id : node.results) {
        if (const auto aliased = aliased_inputs.find(id); aliased != aliased_inputs.end())
          first_write[aliased->second] = step;
      }
    }
    for (const ValueId id : node.operands) {
      if (id != kNoValue) first_read[view_root(graph, id)] = step;
    }
  }
  return ends;
}

namespace {

// Makes the list of steps anew, with the steps that finish collectives before whoever needs them.
class Streams {
 public:
  Streams(Plan& plan, const ById<int>& ends) : plan_(plan), ends_(ends) {
    for (const PlanStep& step : plan.steps) order_.push_back(step.node);
    runs_ = find_runs(plan.graph, order_);
  }

  void run() {
    if (runs_.ends.empty()) return;
    const int n = static_cast<int>(order_.size());
    for (int i = 0; i < n; ++i) {
      PlanStep step = plan_.steps[i];
      const int run = runs_.of[i];
      const bool begins = run >= 0 && (i == 0 || runs_.of[i - 1] != run);
      if (run < 0 || begins) step.joins = join(i);
      new_index_.push_back(static_cast<int>(steps_.size()));
      if (run >= 0) {
        step.stream = Stream::transfer;
        step.begins_collective_group = begins;
        step.ends_collective_group = i + 1 == runs_.ends[run];
        waiting_.emplace(ends_[i] + 1, i);
      }
      steps_.push_back(std::move(step));
    }
    join(n);
    new_index_.push_back(static_cast<int>(steps_.size()));
    plan_.steps = std::move(steps_);
    for (Buffer& buffer : plan_.buffers) renumber(buffer);
  }

 private:
  // Finishes the collectives that step i or one before it needs, each when its own run has ended.
  // Returns what is left to wait for in front of that step itself.
  int join(int i) {
    int latest = -1;
    std::vector<int> finished;
    for (; !waiting_.empty() && waiting_.begin()->first <= i; waiting_.erase(waiting_.begin())) {
      const int one = waiting_.begin()->second;
      latest = std::max(latest, one);
      if (plan_.steps[one].kernel.has_two_phases) finished.push_back(one);
    }
    std::ranges::sort(finished);
    for (const int one : finished) {
      PlanStep step = plan_.steps[one];
      step.kernel.name += " (finish)";
      step.joins = join_run_of(one);
      step.is_second_phase = true;
      steps_.push_back(std::move(step));
    }
    return latest < 0 ? -1 : join_run_of(latest);
  }
  // The end of the collective's run, or -1 where computing has waited for it.
  int join_run_of(int collective) {
    const int run = runs_.of[collective];
    const int end = new_index_[runs_.ends[run] - 1];
    return end > joined_ ? joined_ = end : -1;
  }

  // Steps -1 and n stand for before and after.
  void renumber(Buffer& buffer) const {
    const auto n = static_cast<int>(order_.size());
    if (buffer.first_step >= 0) buffer.first_step = new_index_[buffer.first_step];
    if (buffer.last_step >= n) {
      buffer.last_step = new_index_.back();
    } else if (buffer.last_step >= 0) {
      buffer.last_step = new_index_[buffer.last_step + 1] - 1;
    }
  }

  Plan& plan_;
  const ById<int>& ends_;
  ById<NodeId> order_;
  Runs runs_;
  ById<PlanStep> steps_;
  ById<int> new_index_;              // of each step
  std::multimap<int, int> waiting_;  // step that needs it -> collective
  int joined_ = -1;                  // the last collective that computing has waited for
};

}  // namespace

void add_streams(Plan& plan, const ById<int>& ends) {
  Streams(plan, ends).run();
}

void verify_streams(const Plan& plan) {
  struct UnderWay {
    int step = 0;
    NodeId node = kNoNode;
    bool has_two_phases = false, has_arrived = false;
    Touched touched;
  };
  std::vector<UnderWay> under_way;  // collectives that are not finished
  int run_begin = 0;
  for (int i = 0; i < static_cast<int>(plan.steps.size()); ++i) {
    const PlanStep& step = plan.steps[i];
    const auto check = [&](bool holds, std::string_view fault) {
      if (holds) return;
      throw Error(ErrorCode::internal, "[streams] step {}, {}, {}", i, step.kernel.name, fault);
    };
    const bool computes = step.stream == Stream::compute;
    const bool is_alone = !is_collective(plan.graph.node(step.node).op);
    check(computes == (is_alone || step.is_second_phase), "is on the wrong stream");
    for (UnderWay& one : under_way) one.has_arrived = one.has_arrived || one.step <= step.joins;
    std::erase_if(under_way,
                  [](const UnderWay& one) { return one.has_arrived && !one.has_two_phases; });
    if (step.is_second_phase) {
      const auto its = std::ranges::find(under_way, step.node, &UnderWay::node);
      check(its != under_way.end() && its->has_arrived, "finishes what has not arrived");
      under_way.erase(its);
    }
    const bool follows = i > 0 && plan.steps[i - 1].stream == step.stream;
    check(computes || step.begins_collective_group || follows,
          "begins before its operands are there");
    if (step.begins_collective_group) run_begin = i;
    if (computes && under_way.empty()) continue;
    Touched touched = touched_by(plan, step);
    for (const UnderWay& other : under_way) {
      // Between runs there is a barrier.
      if (!computes && other.step < run_begin && !other.has_two_phases) continue;
      check(!any_overlap(touched.reads, other.touched.writes),
            "reads what a collective is writing");
      check(!any_overlap(touched.writes, other.touched.reads),
            "writes what a collective is reading");
      check(!any_overlap(touched.writes, other.touched.writes),
            "writes what a collective is writing");
    }
    if (!computes) under_way.push_back({i, step.node, step.kernel.has_two_phases, false, touched});
  }
  CHECK(std::ranges::none_of(under_way, &UnderWay::has_two_phases));
}

}  // namespace octet
