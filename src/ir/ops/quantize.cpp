// Quantizers, their scales, and the residual sum that quantizes as it stores. The arithmetic is
// formats/quantize.h's.
#include <algorithm>
#include <limits>

#include "ir/ops/common.h"
#include "ir/ops/error_rules.h"
#include "ir/ops/list.h"

namespace octet::ops {
namespace {

const TensorType kFlag{Dtype::boolean, {}};
const TensorType kDrawType{Dtype::u32, {3}};

// The history is shifted where it lies.
constexpr InplacePair kInplaceHistory[] = {{.result = 1, .operand = 1}};

constexpr ScalePlace kScaleOfQ[] = {{Dequantize::q, Dequantize::scale}};

void need_attrs(std::string_view op, const QuantizeAttrs& attrs, Dtype dtype) {
  if (!(attrs.limit >= 0)) fail(op, "limit must be at least 0, got {}", attrs.limit);
  if (!rounding_supported(dtype, attrs.rounding))
    fail(op, "{} cannot be rounded by {}", dtype_name(dtype), rounding_name(attrs.rounding));
}

// Stochastic rounding has words to draw from, and no other rounding has.
void need_draw(std::string_view op, const QuantizeAttrs& attrs, Types in) {
  constexpr SlotId kDraw = Quantize::draw;
  const bool is_given = in.size() > kDraw && in[kDraw] != absent_type();
  if (is_given != (attrs.rounding == Rounding::sr))
    fail(op, "draw is an operand of rounding sr alone, got {} with {}", is_given ? "one" : "none",
         rounding_name(attrs.rounding));
  if (is_given && in[kDraw] != kDrawType)
    fail(op, "draw must be {}, got {}", to_string(kDrawType), to_string(in[kDraw]));
}

// By row, or in 1xG, Gx1 or BxB.
TensorType in_blocks(std::string_view op, const QuantizeAttrs& attrs, const ResultType& said,
                     const Shape& shape) {
  using Kind = Granularity::Kind;
  need_attrs(op, attrs, said.dtype);
  if (attrs.rounding == Rounding::sr) fail(op, "groups and blocks have no rounding sr");
  const Granularity& by = said.granularity;
  TensorType type{.dtype = said.dtype, .shape = shape, .granularity = by};
  if (by.kind != Kind::row && by.kind != Kind::group && by.kind != Kind::column_group &&
      by.kind != Kind::block)
    fail(op, "expected a result by row or in 1xG, Gx1 or BxB, got {}", to_string(type));
  const bool power = attrs.rule != ScaleRule::linear;
  if (by.scale != Dtype::f32 && by.scale != Dtype::bf16 && !(by.scale == Dtype::e8m0 && power))
    fail(op, "scales must be f32, bf16, or e8m0 by a rule of powers, got {}", dtype_name(by.scale));
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (by.kind != Kind::row && (by.size < 1 || by.size > kMax))
    fail(op, "groups have 1 to {} elements, got {}", kMax, by.size);
  scale_type(type);  // throws where the shape has none
  return type;
}

// By row, or transposed.
TensorType one_scale(std::string_view op, const QuantizeAttrs& attrs, const ResultType& said,
                     const Shape& shape) {
  need_attrs(op, attrs, said.dtype);
  TensorType type = per_tensor(said.dtype, shape);
  if (said.granularity != type.granularity)
    fail(op, "expected a result with one scale, {}", to_string(type));
  type.layout = said.layout;
  if (!type.layout.transposed) return type;
  if (shape.size() != 2) fail(op, "transposed codes need a matrix, got {}", to_string(shape));
  if (type.layout.pad < 1 || type.layout.pad > (int64_t{1} << 48))
    fail(op, "pad must be from 1 to 2^48");
  n_elems(type.stored_shape());  // throws for shapes that are too large
  return type;
}

Results infer_amax(const Attrs&, Types in) {
  for (const TensorType& x : in) {
    if (x == kFlag) continue;
    need_float("amax", "x", x);
  }
  return {real({}), kFlag};
}

Results infer_any_of(const Attrs&, Types in) {
  for (const TensorType& flag : in) need_bool("any_of", "flag", flag);
  return {kFlag};
}

Results infer_quant_scale(const Attrs&, Types in) {
  need_float("quant_scale", "amax", in[0], {});
  return {real({})};
}

Results infer_delayed_scale(const Attrs&, Types in) {
  need_float("delayed_scale", "amax", in[0], {});
  return {real({}), next_history(in[1])};
}

Results infer_quantize(const Attrs& attrs, Types in, Said said) {
  const auto& q = std::get<QuantizeAttrs>(attrs);
  need_float("quantize", "x", in[0]);
  need_float("quantize", "scale", in[1], {});
  need_draw("quantize", q, in);
  return {one_scale("quantize", q, said_of("quantize", said, Quantize::q), in[0].shape)};
}

Results infer_quantize_both(const Attrs& attrs, Types in, Said said) {
  constexpr std::string_view kName = "quantize_both";
  const auto& q = std::get<QuantizeAttrs>(attrs);
  need_float(kName, "x", in[0]);
  need_float(kName, "scale", in[1], {});
  need_draw(kName, q, in);
  Results codes;
  for (const SlotId slot : {QuantizeBoth::q, QuantizeBoth::q_transposed})
    codes.push_back(one_scale(kName, q, said_of(kName, said, slot), in[0].shape));
  if (codes[0].dtype != codes[1].dtype || codes[0].layout.transposed || !codes[1].layout.transposed)
    fail(kName, "expected data by row and the same transposed, got {} and {}", to_string(codes[0]),
         to_string(codes[1]));
  return codes;
}

Results infer_quantize_groups(const Attrs& attrs, Types in, Said said) {
  constexpr std::string_view kName = "quantize_groups";
  const auto& q = std::get<QuantizeAttrs>(attrs);
  need_float(kName, "x", in[0]);
  const TensorType codes =
      in_blocks(kName, q, said_of(kName, said, QuantizeGroups::q), in[0].shape);
  return {codes, scale_type(codes)};
}

Results infer_dequantize(const Attrs&, Types in) {
  if (!in[0].is_scaled()) fail("dequantize", "q must be quantized, got {}", to_string(in[0]));
  return {real(in[0].shape)};
}

Results infer_add_quantize(const Attrs& attrs, Types in, Said said) {
  constexpr std::string_view kName = "add_quantize";
  const auto& q = std::get<QuantizeAttrs>(attrs);
  need_float(kName, "a", in[0]);
  need_float(kName, "b", in[1], in[0].shape);
  const TensorType codes = in_blocks(kName, q, said_of(kName, said, AddQuantize::q), in[0].shape);
  return {real(in[0].shape), codes, scale_type(codes)};
}

Values decompose_add_quantize(Builder& b, const Node& node, Said said) {
  const ValueId sum =
      b.emit_typed(OpCode::add, NoAttrs{}, {node.operands[0], node.operands[1]}, {Dtype::f32})[0];
  const ValueId narrow = b.cast(sum, said[AddQuantize::sum].dtype);
  const auto groups =
      b.emit_typed(OpCode::quantize_groups, node.attrs, {sum}, {said[AddQuantize::q]});
  return {narrow, groups[0], groups[1]};
}

Values decompose_quantize_both(Builder& b, const Node& node, Said said) {
  Values codes;
  for (const ResultType& type : said)
    codes.push_back(b.emit_typed(OpCode::quantize, node.attrs, node.operands, {type})[0]);
  return codes;
}

}  // namespace

TensorType next_history(const TensorType& history) {
  need_rank("delayed_scale", "history", history, 1);
  return history;
}

constinit const OpDef defs::amax = define(OpCode::amax, {.infer = infer_amax});
constinit const OpDef defs::any_of =
    define(OpCode::any_of, {.infer = infer_any_of, .inplace = kInplaceFirst});
constinit const OpDef defs::quant_scale = define(OpCode::quant_scale, {.infer = infer_quant_scale});
constinit const OpDef defs::delayed_scale =
    define(OpCode::delayed_scale, {.infer = infer_delayed_scale, .inplace = kInplaceHistory});
constinit const OpDef defs::quantize = define(OpCode::quantize, {.infer = infer_quantize});
constinit const OpDef defs::quantize_both = define(
    OpCode::quantize_both, {.infer = infer_quantize_both, .decompose = decompose_quantize_both});
constinit const OpDef defs::quantize_groups =
    define(OpCode::quantize_groups, {.infer = infer_quantize_groups});
constinit const OpDef defs::dequantize = define(
    OpCode::dequantize, {.infer = infer_dequantize, .error = error::rounded, .scales = kScaleOfQ});
constinit const OpDef defs::add_quantize = define(
    OpCode::add_quantize,
    {.infer = infer_add_quantize, .decompose = decompose_add_quantize, .inplace = kInplaceEither});
}  // namespace octet::ops
