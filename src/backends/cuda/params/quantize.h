// Scales, codes and what turns one into the other. The arithmetic is formats/quantize.h's, bit by
// bit: scale = max(amax f32(1 / target), 2^-100), 1 for amax 0; codes = encode(x (1 / scale)),
// saturating, NaN kept. High-precision types are f32, bf16, fp16; codes e4m3, e5m2, hif8, but in
// groups, blocks and what is dequantized, which may be of any format of eight bits. Deterministic.
#pragma once

#include <cstdint>

#include "formats/table.h"

namespace octet::cuda {

// amax: operands x[0..n), high precision, any sizes, or flags of one element. Results: f32 max |x|
// over the finite elements of all, bool: a NaN or Inf among them, or a flag that is set. Tail:
// (elements, dtype) of each operand. Scratch: amax_scratch_bytes(n), for one partial maximum per
// block.
struct AmaxParams {
  int64_t n_operands = 0;
};
inline constexpr int kAmaxOperands = 16;      // of one launch
inline constexpr int kMaxMaxima = 8;          // operands of amax_quantize, beside x and history
inline constexpr int64_t kAmaxBlocks = 1056;  // at most, for one operand
constexpr int64_t amax_scratch_bytes(int64_t n_operands) {
  return n_operands * kAmaxBlocks * int64_t{sizeof(uint32_t)};
}

// any_of: result bool = one of the operands' elements is not 0; it may be the first operand.
// Tail: elements of each operand.
struct AnyOfParams {
  int64_t n_operands = 0;
};
inline constexpr int kFlagOperands = 256;  // of one launch

// quant_scale: operand amax f32, result scale f32.
// delayed_scale: operands amax f32, history f32 [n], the oldest first; results: the scale, of the
// history's largest entry where that is above 0 and else of amax, and the history moved on by one,
// amax at its end; it may lie where the old one is.
struct ScaleParams {
  float target = 448;
  int32_t reserved = 0;
  int64_t history = 0;
};

// quantize, quantize_both: operands x [rows, cols] high precision, scale f32, and of rounding sr
// draw u32 [3]. Results: codes as x (by_row), codes [cols, padded_rows] (transposed), rows beyond
// `rows` being codes of zero. rounding: the format's nearest, or any that it has; source, limit,
// stream: QuantizeAttrs.
struct QuantizeParams {
  int64_t rows = 0, cols = 0, padded_rows = 0;
  Dtype x = Dtype::bf16, codes = Dtype::e4m3;
  bool by_row = true, transposed = false;
  Rounding rounding = Rounding::near;
  Dtype source = Dtype::f32;
  // Launches (target/choose/quantize.h): by tiles, which turn; for any format and rounding.
  bool by_tile = false, is_any = false;
  int8_t reserved[4] = {};
  float limit = 0;
  int32_t reserved_2 = 0;
  int64_t stream = 0;
};

// amax_quantize: operands x, history f32 [n] or none, then n_maxima maxima f32 or flags; results:
// the codes of quantize, or of quantize_both the first; scale f32; bool: of amax; with a history
// the next one (delayed_scale); with both layouts the transposed codes. The amax is over the
// maxima, and x too where it measures. Tail: (elements, dtype) of x, where it measures, and of each
// of the maxima. Scratch: amax_scratch_bytes of all operands. The next history does not lie where
// the history lies.
struct AmaxQuantizeParams {
  QuantizeParams quantize = {};
  float target = 448;
  int32_t n_history = 0;
  int32_t n_maxima = 0;
  bool measures = true;
  bool known = false;        // one maximum, f32, and nothing to measure: no launch goes before
  int8_t transposed_at = 0;  // the result of transposed data
  int8_t reserved = 0;
};

// The kernels of groups and blocks (target/choose/quantize.h): groups of 8 to 256 that divide a
// row; whole rows; tiles of kTileSize rows; and what else there is.
inline constexpr int kTileSize = 128;
enum class GroupKernel : uint8_t { even, row, tile, panel };
struct GroupChoice {
  GroupKernel kernel = GroupKernel::panel;
  bool is_typed = false;   // types are compiled in
  bool in_eights = false;  // whole ones, where addresses are multiples of 16
};

// quantize_groups: operand a [rows, cols] high precision; results: codes as a, scales [rows,
// ceil(cols / group)] f32, or bf16, rounded to nearest even, saturating, or powers of two by their
// rule, f32, bf16 or e8m0; codes are made with the stored scales. add_quantize (adds): operands a,
// b; results sum = a + b, and codes and scales of the f32 sum. sum may be a or b.
struct GroupParams {
  int64_t rows = 0, cols = 0, group = 16;
  float target = 448;
  Dtype a = Dtype::bf16, b = Dtype::bf16, sum = Dtype::bf16, codes = Dtype::e4m3;
  bool adds = false;
  ScaleRule rule = ScaleRule::linear;
  Dtype scales = Dtype::bf16;
  GroupChoice choice = {};
  int8_t reserved[2] = {};
};

// quantize_blocks: operand x [rows, cols] high precision; results: codes as x, scales [ceil(rows /
// block_rows), ceil(cols / block_cols)] as those of groups, one a block.
struct BlockParams {
  int64_t rows = 0, cols = 0, block_rows = 1, block_cols = 1;
  float target = 448;
  Dtype x = Dtype::bf16, codes = Dtype::e4m3, scales = Dtype::bf16, source = Dtype::f32;
  ScaleRule rule = ScaleRule::linear;
  Rounding rounding = Rounding::near;
  GroupChoice choice = {};
  int8_t reserved[3] = {};
};

// fake_quantize: operand x [rows, cols] high precision; result y = decode(encode(x (1 / scale)))
// scale in f32, rounded once, scales of groups along the rows: f32, or powers of two (power). y may
// be x.
struct FakeQuantizeParams {
  int64_t rows = 0, cols = 0, group = 1;
  float target = 448;
  Dtype x = Dtype::bf16, y = Dtype::bf16, format = Dtype::e4m3;
  bool power = false;
  GroupChoice choice = {};
  int8_t reserved[5] = {};
};

// periodic_scale: operands amax f32, the scale before f32; result scale f32
// (formats/periodic_scale.h).
struct PeriodicScaleParams {
  float target = 448;
  int32_t reserved = 0;
};

// dequantize: operands codes [rows, cols], scales (f32, bf16 or e8m0: one, or [ceil(rows /
// block_rows), ceil(cols / group)]); result y = code scale in f32, rounded once to y's type. group
// 0: one scale.
struct DequantizeParams {
  int64_t rows = 0, cols = 0, group = 0, block_rows = 1;
  Dtype codes = Dtype::e4m3, scales = Dtype::f32, y = Dtype::f32;
  int8_t reserved[5] = {};
};

}  // namespace octet::cuda
