// fake_quantize (ir/ops/fake_quantize.cpp): quantized and dequantized, with a scale for each group
// of a row. f32 inside, the arithmetic of formats/quantize.h bit for bit.
#pragma once

#include "backends/cpu/common/operand.h"
#include "formats/quantize.h"
#include "ir/attrs.h"

namespace octet::cpu {

// Of rows of `cols` elements.
inline Quantizer fake_quantizer(const FakeQuantizeAttrs& attrs, int64_t cols) {
  Quantizer q;
  q.format = attrs.dtype;
  q.granularity = {.kind = Granularity::Kind::row};
  if (attrs.group < cols) q.granularity = {.kind = Granularity::Kind::group, .size = attrs.group};
  q.scale_type = attrs.power ? Dtype::e8m0 : Dtype::f32;
  q.rule = attrs.power ? ScaleRule::power_ceil : ScaleRule::linear;
  q.amax_target = static_cast<float>(attrs.target);
  return q;
}

// f32 [rows, cols]; y may be x.
void fake_quantize(const Quantizer& quantizer, RowShape shape, const float* x, float* y,
                   ThreadPool& pool);

}  // namespace octet::cpu
