// The gradients of a gated activation and the quantizer that both share become one op.
#include <algorithm>

#include "formats/table.h"
#include "ir/op_def.h"
#include "passes/lower/fuse_rules.h"

namespace octet {
namespace {

// The one quantize_both that reads a gradient, beside what measures it; nullptr where anything else
// does.
const Node* quantizer_of(const Matcher& m, ValueId gradient) {
  const Node* found = nullptr;
  if (m.is_graph_output(gradient)) return nullptr;
  for (const Node* node : m.readers(gradient)) {
    if (node->op == OpCode::amax) continue;
    if (node->op != OpCode::quantize_both || found != nullptr) return nullptr;
    found = node;
  }
  return found;
}

const Node* amax_of(const Matcher& m, ValueId gradient) {
  return m.reader(gradient, OpCode::amax);
}

bool is_alike(const Matcher& m, const Node& a, const Node& b) {
  const auto is_same = [&](SlotId slot) { return m.type(a.out(slot)) == m.type(b.out(slot)); };
  return a.attrs == b.attrs && a.in(Quantize::scale) == b.in(Quantize::scale) &&
         std::get<QuantizeAttrs>(a.attrs).has_default_scaling() &&
         is_fp8(m.dtype(a.out(Quantize::q))) && is_same(QuantizeBoth::q) &&
         is_same(QuantizeBoth::q_transposed);
}

// The maker of the scale, from the amax of both gradients, which nothing else reads; nullptr where
// it is another's.
const Node* own_scale(const Matcher& m, const Node& gradients, const Node& amax,
                      const Node& quantize) {
  const Node* scale = scale_maker(m, quantize);
  const bool of_both = std::is_permutation(amax.operands.begin(), amax.operands.end(),
                                           gradients.results.begin(), gradients.results.end());
  const bool is_own = scale != nullptr && of_both && m.read_once(amax.out(AmaxOp::amax)) &&
                      scale->in(QuantScale::amax) == amax.out(AmaxOp::amax);
  return is_own ? scale : nullptr;
}

}  // namespace

std::optional<Match> match_gradient_quantize(const Matcher& m, const Node& node) {
  using Op = GatedActGradQuantize;
  if (!m.options().quantizes_gradients) return std::nullopt;
  const ValueId dgate = node.out(GatedActGrad::dgate), dup = node.out(GatedActGrad::dup);
  const Node *first = quantizer_of(m, dgate), *second = quantizer_of(m, dup);
  if (first == nullptr || second == nullptr || !is_alike(m, *first, *second)) return std::nullopt;
  const Dtype type = m.dtype(node.in(GatedActGrad::dy));
  if (m.dtype(dgate) != type || m.dtype(dup) != type) return std::nullopt;
  const Node *amax = amax_of(m, dgate), *scale = nullptr;
  if (amax != amax_of(m, dup)) return std::nullopt;
  if (amax != nullptr && (scale = own_scale(m, node, *amax, *first)) == nullptr)
    return std::nullopt;
  ValueIds operands = node.operands;
  operands.resize(op_def(OpCode::gated_act_grad_quantize).operands.size(), kNoValue);
  ValueIds replaced(op_def(OpCode::gated_act_grad_quantize).results.size(), kNoValue);
  replaced[Op::dgate] = first->out(QuantizeBoth::q);
  replaced[Op::dup] = second->out(QuantizeBoth::q);
  replaced[Op::dgate_transposed] = first->out(QuantizeBoth::q_transposed);
  replaced[Op::dup_transposed] = second->out(QuantizeBoth::q_transposed);
  std::vector<NodeId> nodes = {m.id(node), m.id(*first), m.id(*second)};
  if (scale == nullptr) {
    operands[Op::given_scale] = first->in(Quantize::scale);
  } else {
    nodes.insert(nodes.end(), {m.id(*amax), m.id(*scale)});
    operands[Op::history] = scale->in(DelayedScale::history);
    replaced[Op::scale] = scale->out(QuantScale::scale);
    replaced[Op::nonfinite] = amax->out(AmaxOp::nonfinite);
    replaced[Op::next_history] = scale->out(DelayedScale::next_history);
  }
  // A scale that is given may be made between the gradients and their quantizers.
  const NodeId last = scale == nullptr ? std::min(m.id(*first), m.id(*second)) : m.id(node);
  std::erase(nodes, last);
  return Match{.last = last,
               .op = OpCode::gated_act_grad_quantize,
               .attrs = GatedActQuantizeAttrs{.act = std::get<GatedActAttrs>(node.attrs),
                                              .q = std::get<QuantizeAttrs>(first->attrs),
                                              .both = true},
               .operands = operands,
               .replaces = replaced,
               .tag = node.tag,
               .consumed = nodes};
}

}  // namespace octet
