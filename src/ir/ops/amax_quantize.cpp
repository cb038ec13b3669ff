// A per-tensor quantizer with the scale that it makes: amax, quant_scale or delayed_scale, and
// quantize in one. Operands: x, a history or none, then maxima and flags as amax takes them. The
// scale is from the largest of them, and of x too where the attribute `measures` is set; with a
// history as delayed_scale has it. So a tensor whose amax came with it is read once, and so is one
// with a history, which finds its amax on the way.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/list.h"
#include "ir/ops/quantize_layers.h"

namespace octet::ops {
namespace {

constexpr std::string_view kName = "amax_quantize";
constexpr size_t kHistory = AmaxQuantize::history, kFirstMaximum = AmaxQuantize::maximum;

Results infer_amax_quantize(const Attrs& attrs, Types in, Said said) {
  const auto& a = std::get<AmaxQuantizeAttrs>(attrs);
  const Types maxima = in.subspan(std::min(in.size(), kFirstMaximum));
  if (!a.measures && maxima.empty()) fail(kName, "expected an amax, or measures = true");
  for (const TensorType& maximum : maxima) {
    if (maximum.dtype == Dtype::boolean)
      need_shape(kName, "flag", maximum, {});
    else
      need_float(kName, "amax", maximum, {});
  }
  const Results quantized{in[0], real({})};
  const Results codes =
      quantized_types(a.q, quantized, said_codes(kName, said, a.both, AmaxQuantize::q_transposed));
  Results results(defs::amax_quantize.results.size(), absent_type());
  results[AmaxQuantize::q] = codes[0];
  results[AmaxQuantize::scale] = {Dtype::f32, {}};
  results[AmaxQuantize::nonfinite] = {Dtype::boolean, {}};
  if (!absent(in, kHistory)) results[AmaxQuantize::next_history] = next_history(in[kHistory]);
  if (a.both) results[AmaxQuantize::q_transposed] = codes[1];
  return results;
}

Values decompose_amax_quantize(Builder& b, const Node& node, Said said) {
  const auto& a = std::get<AmaxQuantizeAttrs>(node.attrs);
  const ValueId x = node.in(AmaxQuantize::x), history = node.in(kHistory);
  Values measured;
  if (a.measures) measured.push_back(x);
  for (size_t i = kFirstMaximum; i < node.operands.size(); ++i)
    measured.push_back(node.operands[i]);
  const OwnScale own = emit_own_scale(b, scale_attrs(a.q), measured, history);
  const Values codes = emit_quantize(b, a.q, x, own.scale,
                                     said_codes(kName, said, a.both, AmaxQuantize::q_transposed));
  Values results(node.results.size(), kNoValue);
  results[AmaxQuantize::q] = codes[0];
  results[AmaxQuantize::scale] = own.scale;
  results[AmaxQuantize::nonfinite] = own.nonfinite;
  if (history != kNoValue) results[AmaxQuantize::next_history] = own.next_history;
  if (a.both) results[AmaxQuantize::q_transposed] = codes[QuantizeBoth::q_transposed];
  return results;
}

}  // namespace

constinit const OpDef defs::amax_quantize = define(
    OpCode::amax_quantize, {.infer = infer_amax_quantize, .decompose = decompose_amax_quantize});

}  // namespace octet::ops
