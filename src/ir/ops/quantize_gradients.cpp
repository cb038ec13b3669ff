// The gradients of a gated activation and the per-tensor quantizer that both share, so that
// unquantized gradients are never stored. They are rounded to dy's type before they are measured
// and quantized:
// the codes are those of the two ops. The scale is given, or made from the amax of both gradients,
// or with a history as delayed_scale does.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/quantize_layers.h"

namespace octet::ops {
namespace {

using Slot = GatedActGradQuantize;
constexpr std::string_view kName = "gated_act_grad_quantize";

Types gradient_operands(Types in) {
  return in.first(std::min<size_t>(in.size(), Slot::given_scale));
}

Results infer_gradients(const Attrs& attrs, Types in, Said said) {
  const auto& a = std::get<GatedActQuantizeAttrs>(attrs);
  const bool given = !absent(in, Slot::given_scale), delayed = !absent(in, Slot::history);
  if (given && delayed) fail(kName, "a scale that is given has no history");
  if (a.act.amax) fail(kName, "expected amax = false");
  const Results wide = defs::gated_act_grad.infer(a.act, gradient_operands(in));
  const Results quantized{wide[0], given ? in[Slot::given_scale] : real({})};
  const Results codes =
      quantized_types(a.q, quantized, said_codes(kName, said, a.both, Slot::dgate_transposed));
  if (codes[0].layout.transposed) fail(kName, "expected data by row, got {}", to_string(codes[0]));
  Results results(op_def(OpCode::gated_act_grad_quantize).results.size(), absent_type());
  results[Slot::dgate] = results[Slot::dup] = codes[0];
  if (a.both) results[Slot::dgate_transposed] = results[Slot::dup_transposed] = codes[1];
  if (given) return results;
  results[Slot::scale] = {Dtype::f32, {}};
  results[Slot::nonfinite] = {Dtype::boolean, {}};
  if (delayed) results[Slot::next_history] = next_history(in[Slot::history]);
  return results;
}

Values decompose_gradients(Builder& b, const Node& node, Said said) {
  const auto& a = std::get<GatedActQuantizeAttrs>(node.attrs);
  Values operands = node.operands;
  operands.resize(std::min<size_t>(operands.size(), Slot::given_scale));
  const ResultTypes like_dy(2, b.type(node.in(Slot::dy)).dtype);
  const Values wide = b.emit_typed(OpCode::gated_act_grad, a.act, operands, like_dy);
  Values results(node.results.size(), kNoValue);
  ValueId scale = node.in(Slot::given_scale);
  if (scale == kNoValue) {
    const OwnScale own = emit_own_scale(b, scale_attrs(a.q), wide, node.in(Slot::history));
    scale = results[Slot::scale] = own.scale;
    results[Slot::nonfinite] = own.nonfinite;
    if (own.next_history != kNoValue) results[Slot::next_history] = own.next_history;
  }
  for (const int i : {0, 1}) {
    const auto at = static_cast<size_t>(i);
    const Values codes = emit_quantize(b, a.q, wide[at], scale,
                                       said_codes(kName, said, a.both, Slot::dgate_transposed));
    results[Slot::dgate + at] = codes[0];
    if (a.both) results[Slot::dgate_transposed + at] = codes[QuantizeBoth::q_transposed];
  }
  return results;
}

}  // namespace

constinit const OpDef defs::gated_act_grad_quantize =
    define(OpCode::gated_act_grad_quantize, {.infer = infer_gradients,
                                             .decompose = decompose_gradients,
                                             .inplace = kShiftedHistory<Slot>,
                                             .scales = kScalesOfGate<Slot>});

}  // namespace octet::ops
