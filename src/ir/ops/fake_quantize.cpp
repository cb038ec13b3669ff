// Post-training quantization of an activation whose scale is its own: quantize, then dequantize.
//   fake_quantize(x): y[r,c] = scale[r,g] * decode(encode(x[r,c] / scale[r,g])), g = c / group
//   scale of the group's finite maximum: formats/quantize.h's rule, linear in f32, or with `power`
//   the power of two of MX (RCEIL)
// x: [..., C], rows as they lie; y like x. The last group of a row may be shorter. No gradient.
#include "formats/table.h"
#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet::ops {
namespace {

Results infer_fake_quantize(const Attrs& attrs, Types in) {
  const auto& a = std::get<FakeQuantizeAttrs>(attrs);
  if (!has_codec(a.dtype)) {
    fail("fake_quantize", "expected an eight-bit dtype of elements, got {}", dtype_name(a.dtype));
  }
  if (a.group < 1) fail("fake_quantize", "group must be at least 1, got {}", a.group);
  need_float("fake_quantize", "x", in[Unary::x]);
  return {moved(in[Unary::x], in[Unary::x].shape)};
}

}  // namespace

constinit const OpDef defs::fake_quantize =
    define(OpCode::fake_quantize, {.infer = infer_fake_quantize, .inplace = kInplaceFirst});

}  // namespace octet::ops
