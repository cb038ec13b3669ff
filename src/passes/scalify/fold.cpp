#include "passes/scalify/fold.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

class Folder {
 public:
  explicit Folder(const Graph& graph)
      : rewriter_(graph), b_(rewriter_.builder()), readers_(uses(graph)) {}

  Graph run() {
    const Graph& from = rewriter_.from();
    for (const GraphOutput& output : from.outputs) graph_outputs_.insert(output.value);
    for (const Node& node : from.nodes) {
      if (folded_.contains(node.results[0])) continue;
      if (node.op != OpCode::gemm || !fold(node)) rewriter_.copy(node);
    }
    return rewriter_.finish();
  }

 private:
  // The number that a scalar is, where it is one; an absent factor is 1.
  std::optional<double> constant(ValueId id) const {
    if (id == kNoValue) return 1;
    const Node* node = rewriter_.from().producer(id, OpCode::fill);
    if (node == nullptr) return std::nullopt;
    return std::get<FillAttrs>(node->attrs).value;
  }

  bool fold(const Node& gemm) {
    const ValueId y = gemm.out(Gemm::y);
    const auto& readers = readers_[static_cast<size_t>(y)];
    if (readers.size() != 1 || graph_outputs_.contains(y) || gemm.in(Gemm::c) != kNoValue)
      return false;
    const Node& rescale = rewriter_.from().node(readers[0]);
    if (rescale.op != OpCode::rescale || rescale.in(Rescale::x) != y) return false;
    const auto factor = constant(rescale.in(Rescale::factor));
    const auto scale = constant(gemm.in(Gemm::scale_a));
    if (!factor || !scale || gemm.in(Gemm::scale_b) != kNoValue) return false;
    int exponent = 0;
    if (std::frexp(*factor, &exponent) != 0.5) return false;  // the result is rounded before it
    b_.tag = gemm.tag;
    ValueIds operands = {rewriter_.map(gemm.in(Gemm::a)), rewriter_.map(gemm.in(Gemm::b)),
                         kNoValue};
    if (const double merged = *factor * *scale; merged != 1) operands.push_back(filled(merged));
    rewriter_.set(rescale.results, b_.emit(OpCode::gemm, gemm.attrs, operands));
    folded_.insert(rescale.results[0]);
    return true;
  }

  ValueId filled(double value) {
    const auto [it, added] = fills_.try_emplace(value, kNoValue);
    if (added) it->second = b_.fill({}, value);
    return it->second;
  }

  Rewriter rewriter_;
  Builder& b_;
  std::vector<std::vector<NodeId>> readers_;
  std::set<ValueId> graph_outputs_, folded_;
  std::map<double, ValueId> fills_;
};

}  // namespace

Graph fold_rescales(const Graph& graph) {
  return Folder(graph).run();
}

}  // namespace octet
