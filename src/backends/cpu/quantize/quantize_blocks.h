// Quantizers that the fused kernels do not know: blocks of rows and columns, scales by any rule in
// f32, BF16 or E8M0, and roundings other than the format's nearest. The arithmetic is
// formats/quantize.h's, bit for bit:
//   blocks       scale = rule(amax of the block), q = encode(f32(x * f32(1 / scale)))
//   rounded      q = encode(f32(x * f32(1 / scale)), rounding), one scale; random words by element
// Matrices are row-major and dense; blocks at the right and lower edge may be smaller. Results are
// the same for any number of threads.
#pragma once

#include "backends/cpu/common/operand.h"
#include "backends/cpu/quantize/quantize.h"
#include "formats/quantize.h"
#include "ir/attrs.h"
#include "ir/types.h"

namespace octet::cpu {

// scales: f32, BF16 or E8M0, [ceil(rows / tile.rows), ceil(cols / tile.cols)].
struct BlockData {
  Out q = {}, scales = {};
  ScaleTile tile = {};
};
void quantize_blocks(In x, const QuantizeAttrs& attrs, RowShape shape, const BlockData& out,
                     ThreadPool& pool);

// y = f32(q * scale), rounded to y's storage: exact in BF16 where the scale is a power of two.
struct QuantizedBlocks {
  In q = {}, scales = {};
  ScaleTile tile = {};
};
void dequantize_blocks(const QuantizedBlocks& x, RowShape shape, Out y, ThreadPool& pool);

// Like quantize() (quantize.h), rounded as attrs say.
struct RoundedBy {
  const QuantizeAttrs& attrs;
  const uint32_t* draw;  // Quantize::draw, of rounding sr
};
void quantize_rounded(In x, const RoundedBy& by, const TensorCodes& out, RowShape shape,
                      ThreadPool& pool);

// fake_quantize (ir/ops/fake_quantize.cpp): quantized and dequantized, with a scale for each group
// of a row. f32 inside, the arithmetic of formats/quantize.h bit for bit.
//
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
