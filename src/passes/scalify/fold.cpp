#include "passes/scalify/fold.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "passes/lower/fold.h"
#include "passes/rewrite/rewrite.h"

namespace octet {
namespace {

class Folder {
 public:
  explicit Folder(const Graph& graph) : m_(graph), rewriter_(graph), b_(rewriter_.builder()) {}

  Graph run() {
    for (const Node& node : m_.graph().nodes) {
      if (folded_.contains(node.results[0])) continue;
      if (node.op != OpCode::gemm || !fold(node)) rewriter_.copy(node);
    }
    return rewriter_.finish();
  }

 private:
  // The number that a scalar is, where it is one; an absent factor is 1.
  std::optional<double> constant(ValueId id) const {
    return id == kNoValue ? 1 : filled_with(m_.graph(), id);
  }

  bool fold(const Node& gemm) {
    const ValueId y = gemm.out(Gemm::y);
    const Node* rescale = m_.read_once(y) ? m_.reader(y, OpCode::rescale) : nullptr;
    if (rescale == nullptr || rescale->in(Rescale::x) != y || gemm.in(Gemm::c) != kNoValue)
      return false;
    const auto factor = constant(rescale->in(Rescale::factor));
    const auto scale = constant(gemm.in(Gemm::scale_a));
    if (!factor || !scale || gemm.in(Gemm::scale_b) != kNoValue) return false;
    int exponent = 0;
    if (std::frexp(*factor, &exponent) != 0.5) return false;  // the result is rounded before it
    b_.tag = gemm.tag;
    ValueIds operands = {rewriter_.map(gemm.in(Gemm::a)), rewriter_.map(gemm.in(Gemm::b)),
                         kNoValue};
    if (const double merged = *factor * *scale; merged != 1) operands.push_back(filled(merged));
    rewriter_.set(rescale->results, b_.emit(OpCode::gemm, gemm.attrs, operands));
    folded_.insert(rescale->results[0]);
    return true;
  }

  ValueId filled(double value) {
    const auto [it, added] = fills_.try_emplace(value, kNoValue);
    if (added) it->second = b_.fill({}, value);
    return it->second;
  }

  Matcher m_;
  Rewriter rewriter_;
  Builder& b_;
  std::set<ValueId> folded_;
  std::map<double, ValueId> fills_;
};

}  // namespace

Graph fold_rescales(const Graph& graph) {
  return Folder(graph).run();
}

}  // namespace octet
