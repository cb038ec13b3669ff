#include "passes/lower/fuse_amax.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/op_def.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

class AmaxFusion {
 public:
  explicit AmaxFusion(const Graph& graph) : graph_(graph), rewriter_(graph) {
    for (const Node& node : graph.nodes) {
      if (node.op != OpCode::amax) continue;
      for (const ValueId id : node.operands) {
        if (emitter(node, id) != nullptr) emitters_.insert(graph_.producer(id));
      }
    }
  }

  Graph run() {
    for (const Node& node : graph_.nodes) {
      if (emitters_.count(&node) > 0) {
        emit(node);
      } else if (node.op == OpCode::amax) {
        join(node);
      } else {
        rewriter_.copy(node);
      }
    }
    return rewriter_.finish();
  }

 private:
  // The results of an op that its amax is of: its first.
  static ValueIds covered(const Node& node) {
    const auto begin = node.results.begin();
    return {begin, begin + op_def(node.op).amax_results};
  }

  // The op that makes this operand of an amax and can give the maximum of it, or nullptr.
  const Node* emitter(const Node& amax, ValueId operand) const {
    const Node* node = graph_.producer(operand);
    if (node == nullptr || op_def(node->op).amax_results == 0 || emits_amax(node->attrs))
      return nullptr;
    const Dtype stored = graph_.type(node->operands.front()).dtype;
    const auto results = covered(*node);
    const auto fits = [&](ValueId id) {
      return graph_.type(id).dtype == stored &&
             std::find(amax.operands.begin(), amax.operands.end(), id) != amax.operands.end();
    };
    const bool all = std::find(results.begin(), results.end(), operand) != results.end() &&
                     std::all_of(results.begin(), results.end(), fits);
    return all ? node : nullptr;
  }

  void emit(const Node& node) {
    ResultTypes types = result_types(graph_, node);
    types.resize(op_def(node.op).results.size(), Dtype::f32);
    rewriter_.builder().tag = node.tag;
    auto results = rewriter_.builder().emit_typed(node.op, with_amax(node.attrs, true),
                                                  rewriter_.map(node.operands), types);
    amax_of_[&node] = {results.end()[-2], results.end()[-1]};
    results.resize(node.results.size());
    rewriter_.set(node.results, results);
  }

  void join(const Node& node) {
    ValueIds operands;
    std::set<const Node*> taken;
    for (const ValueId id : node.operands) {
      const Node* from = emitter(node, id);
      if (from == nullptr) {
        operands.push_back(rewriter_.map(id));
      } else if (taken.insert(from).second) {
        operands.insert(operands.end(), amax_of_[from].begin(), amax_of_[from].end());
      }
    }
    if (taken.size() == 1 && operands.size() == 2 && operands == amax_of_[*taken.begin()])
      return rewriter_.set(node.results, operands);
    rewriter_.builder().tag = node.tag;
    const Dtype dtype = graph_.type(node.out(AmaxOp::amax)).dtype;
    rewriter_.set(node.results,
                  rewriter_.builder().emit_typed(OpCode::amax, NoAttrs{}, operands, {dtype}));
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::set<const Node*> emitters_;
  std::map<const Node*, ValueIds> amax_of_;
};

}  // namespace

Graph fuse_amax(const Graph& graph) {
  return AmaxFusion(graph).run();
}

}  // namespace octet
