// A scale, the amax that it is made from, and the first quantizer that it serves become one op.
// Runs behind fuse_amax: what came with the tensor is not measured again.
#include <algorithm>

#include "ir/ops/list.h"
#include "passes/lower/fuse_rules.h"

namespace octet {
namespace {

bool is_scalar(const Matcher& m, ValueId id) {
  return m.type(id).shape.empty();
}

// The maker of the scale of a quantizer that is its first reader, or nullptr.
const Node* own_scale(const Matcher& m, const Node& quantize) {
  const Node* scale = scale_maker(m, quantize);
  if (scale == nullptr || m.is_graph_output(scale->out(QuantScale::scale))) return nullptr;
  const auto too_early = [&](ValueId id) { return m.read_before(id, quantize); };
  return std::any_of(scale->results.begin(), scale->results.end(), too_early) ? nullptr : scale;
}

// The amax of `x` and of other maxima, or of these alone, that nothing but the scale reads; nullptr
// where the scale's operand is made otherwise, and is an operand of the fused op then.
const Node* own_amax(const Matcher& m, const Node& scale, const Node& quantize) {
  const Node* amax = m.producer(scale.in(QuantScale::amax), OpCode::amax);
  if (amax == nullptr || !m.read_once(amax->out(AmaxOp::amax)) ||
      m.read_before(amax->out(AmaxOp::nonfinite), quantize))
    return nullptr;
  const bool known = std::all_of(amax->operands.begin(), amax->operands.end(), [&](ValueId id) {
    return id == quantize.in(Quantize::x) || is_scalar(m, id);
  });
  const bool fits = std::ssize(amax->operands) <= ops::kMaxMaxima;
  return known && fits ? amax : nullptr;
}

}  // namespace

std::optional<Match> match_amax_quantize(const Matcher& m, const Node& node) {
  if (!op_def(node.op).is_quantizer) return std::nullopt;
  const Node* scale = own_scale(m, node);
  if (scale == nullptr) return std::nullopt;
  const Node* amax = own_amax(m, *scale, node);
  AmaxQuantizeAttrs attrs{.q = std::get<QuantizeAttrs>(node.attrs),
                          .both = node.out(QuantizeBoth::q_transposed) != kNoValue,
                          .measures = false};
  const ValueId x = node.in(Quantize::x);
  ValueIds operands{x, scale->in(DelayedScale::history)};
  if (amax == nullptr) {
    operands.push_back(scale->in(QuantScale::amax));
  } else {
    for (const ValueId id : amax->operands) {
      if (id != x)
        operands.push_back(id);
      else
        attrs.measures = true;
    }
  }
  ValueIds replaced(op_def(OpCode::amax_quantize).results.size(), kNoValue);
  replaced[AmaxQuantize::q] = node.out(Quantize::q);
  replaced[AmaxQuantize::scale] = scale->out(QuantScale::scale);
  if (amax != nullptr) replaced[AmaxQuantize::nonfinite] = amax->out(AmaxOp::nonfinite);
  replaced[AmaxQuantize::next_history] = scale->out(DelayedScale::next_history);
  replaced[AmaxQuantize::q_transposed] = node.out(QuantizeBoth::q_transposed);
  Match match{.last = m.id(node),
              .op = OpCode::amax_quantize,
              .attrs = attrs,
              .operands = operands,
              .replaces = replaced,
              .tag = node.tag,
              .consumed = {m.id(*scale)}};
  if (amax != nullptr) match.consumed.push_back(m.id(*amax));
  return match;
}

}  // namespace octet
