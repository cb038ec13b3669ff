// A scale, the amax that it is made from, and the first quantizer that it serves become one op.
// Runs behind fuse_amax: what came with the tensor is not measured again.
#include <algorithm>

#include "ir/ops/list.h"
#include "passes/lower/fuse_rules.h"

namespace octet {
namespace {

bool is_scalar(const Matcher& m, ValueId id) {
  return m.graph().type(id).shape.empty();
}

// The maker of the scale of a quantizer that is its first reader, or nullptr.
const Node* own_scale(const Matcher& m, const Node& quantize) {
  const Node* scale = scale_maker(m, quantize);
  if (scale == nullptr || m.handed_out(scale->results[0])) return nullptr;
  const auto too_early = [&](ValueId id) { return m.read_before(id, quantize); };
  return std::any_of(scale->results.begin(), scale->results.end(), too_early) ? nullptr : scale;
}

// The amax of `x` and of other maxima, or of these alone, that nothing but the scale reads; nullptr
// where the scale's operand is made otherwise, and is an operand of the fused op then.
const Node* own_amax(const Matcher& m, const Node& scale, const Node& quantize) {
  const Node* amax = m.producer(scale.operands[0]);
  if (amax == nullptr || amax->op != OpCode::amax || !m.read_once(amax->results[0]) ||
      m.read_before(amax->results[1], quantize))
    return nullptr;
  const bool known = std::all_of(amax->operands.begin(), amax->operands.end(), [&](ValueId id) {
    return id == quantize.operands[0] || is_scalar(m, id);
  });
  const bool fits = std::ssize(amax->operands) <= ops::kMaxMaxima;
  return known && fits ? amax : nullptr;
}

}  // namespace

std::optional<Match> match_amax_quantize(const Matcher& m, const Node& node,
                                         std::vector<std::string>&) {
  if (node.op != OpCode::quantize && node.op != OpCode::quantize_both) return std::nullopt;
  const Node* scale = own_scale(m, node);
  if (scale == nullptr) return std::nullopt;
  const bool delayed = scale->op == OpCode::delayed_scale;
  const Node* amax = own_amax(m, *scale, node);
  AmaxQuantizeAttrs attrs{.q = std::get<QuantizeAttrs>(node.attrs),
                          .both = node.op == OpCode::quantize_both,
                          .measures = false};
  std::vector<ValueId> operands{node.operands[0], delayed ? scale->operands[1] : kNoValue};
  if (amax == nullptr) {
    operands.push_back(scale->operands[0]);
  } else {
    for (const ValueId id : amax->operands) {
      if (id != node.operands[0])
        operands.push_back(id);
      else
        attrs.measures = true;
    }
  }
  while (operands.back() == kNoValue) operands.pop_back();
  Match match{.last = &node,
              .op = OpCode::amax_quantize,
              .attrs = attrs,
              .operands = operands,
              .replaces = {node.results[0], scale->results[0],
                           amax == nullptr ? kNoValue : amax->results[1]},
              .dtypes = {},
              .tag = node.tag,
              .consumed = {scale}};
  if (amax != nullptr) match.consumed.push_back(amax);
  if (delayed) match.replaces.push_back(scale->results[1]);
  if (attrs.both) match.replaces.push_back(node.results[1]);
  match.dtypes.assign(match.replaces.size(), Dtype::f32);
  return match;
}

}  // namespace octet
