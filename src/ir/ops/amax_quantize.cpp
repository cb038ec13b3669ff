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
constexpr size_t kFirstMaximum = AmaxQuantize::maximum;

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
  return infer_store({defs::amax_quantize, a.q, a.both, said}, 1, in[AmaxQuantize::x], in);
}

Values decompose_amax_quantize(Builder& b, const Node& node, Said said) {
  const auto& a = std::get<AmaxQuantizeAttrs>(node.attrs);
  const ValueId x = node.in(AmaxQuantize::x);
  Values measured;
  if (a.measures) measured.push_back(x);
  for (size_t i = kFirstMaximum; i < node.operands.size(); ++i)
    measured.push_back(node.operands[i]);
  return emit_store(b, node, {defs::amax_quantize, a.q, a.both, said}, {x}, measured);
}

}  // namespace

constinit const OpDef defs::amax_quantize = define(
    OpCode::amax_quantize, {.infer = infer_amax_quantize, .decompose = decompose_amax_quantize});

}  // namespace octet::ops
