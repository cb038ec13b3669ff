#include "compile/expand_updates.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/integer.h"
#include "optim/rules/rule.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

// Elements of what is built together, of a rank, at most: enough to fill any device.
constexpr int64_t kMaxTogether = int64_t{1} << 25;

class Expander {
 public:
  Expander(const Graph& graph, const OptimPolicy& policy)
      : graph_(graph),
        rewriter_(graph),
        scalars_(rewriter_.builder()),
        by_size_(policy),
        waits_(graph.values.size(), false) {
    find_groups();
  }

  Graph run() {
    for (const Node& node : graph_.nodes) reads_waiting(node) ? hold(node) : take(node);
    CHECK(held_.empty());
    return rewriter_.finish();
  }

 private:
  struct Group {
    size_t size = 0;
    std::vector<UpdateBuilder> known = {};
  };

  // Updates of one shape, whose step is skipped together, in groups as even as they can be.
  void find_groups() {
    using Key = std::tuple<UpdateKind, Shape, int64_t, ValueId>;
    std::map<Key, ById<const Node*>> alike;
    for (const Node& node : graph_.nodes) {
      const auto* a = std::get_if<UpdateAttrs>(&node.attrs);
      if (a != nullptr && update_rule(a->rule).build_together != nullptr)
        alike[{a->rule, a->shape, a->ranks, node.in(Update::found_nonfinite)}].push_back(&node);
    }
    for (const auto& [key, nodes] : alike) {
      const int64_t each = ceil_div(n_elems(std::get<Shape>(key)), std::get<int64_t>(key));
      const int64_t most = std::max<int64_t>(kMaxTogether / std::max<int64_t>(each, 1), 1);
      const int64_t n = std::ssize(nodes), size = ceil_div(n, ceil_div(n, most));
      for (int64_t i = 0; i < n; ++i) {
        if (i % size == 0) groups_.emplace_back();
        ++groups_.back().size;
        group_of_[nodes[i]] = groups_.size() - 1;
      }
    }
  }

  bool reads_waiting(const Node& node) const {
    return std::ranges::any_of(node.operands,
                               [&](ValueId id) { return id != kNoValue && waits_[id]; });
  }
  void wait(const Node& node, bool waits) {
    for (const ValueId id : node.results) {
      if (id != kNoValue) waits_[id] = waits;
    }
  }
  void hold(const Node& node) {
    wait(node, true);
    held_.push_back(&node);
  }

  void take(const Node& node) {
    wait(node, false);
    if (!op_def(node.op).is_abstract) {
      rewriter_.copy(node);
      return;
    }
    UpdateBuilder update(rewriter_.builder(), scalars_, node, rewriter_.map(node.operands),
                         by_size_);
    const auto group = group_of_.find(&node);
    if (group == group_of_.end()) {
      update.begin();
      update_rule(update.attrs().rule).build(update);
      return rewriter_.set(node.results, update.results());
    }
    Group& all = groups_[group->second];
    all.known.push_back(std::move(update));
    wait(node, true);
    if (all.known.size() == all.size) build(all.known);
  }

  void build(std::vector<UpdateBuilder>& all) {
    update_rule(all[0].attrs().rule).build_together(all);
    for (const UpdateBuilder& update : all) {
      rewriter_.set(update.node().results, update.results());
      wait(update.node(), false);
    }
    for (const Node* node : std::exchange(held_, {}))
      reads_waiting(*node) ? hold(*node) : take(*node);
  }

  const Graph& graph_;
  Rewriter rewriter_;
  Scalars scalars_;
  PolicyBySize by_size_;
  ById<bool> waits_;               // by value: for a group that is not known yet
  std::vector<const Node*> held_;  // what reads those, in order
  std::vector<Group> groups_;
  std::map<const Node*, size_t> group_of_;
};

}  // namespace

Graph expand_updates(const Graph& graph, const OptimPolicy& policy) {
  return Expander(graph, policy).run();
}

}  // namespace octet
