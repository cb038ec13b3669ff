// Quantizers, their scales, and the ops that quantize as they store. The arithmetic is
// formats/quantize.h's.
#include <algorithm>

#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet::ops {
namespace {

const TensorType kFlag{.dtype = Dtype::boolean, .shape = {}};

// The history is shifted where it lies.
constexpr InplacePair kInplaceHistory[] = {{.result = 1, .operand = 1}};

int64_t pad_to(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

void need_codes(std::string_view op, const QuantizeAttrs& attrs) {
  if (!is_quantized(attrs.dtype))
    fail(op, "expected an eight-bit float dtype, got {}", dtype_name(attrs.dtype));
  if (attrs.group < 0 || attrs.pad < 1) fail(op, "group must be at least 0 and pad at least 1");
}

TensorType row_codes(const QuantizeAttrs& attrs, const Shape& shape) {
  return {.dtype = attrs.dtype, .shape = shape};
}

TensorType transposed_codes(std::string_view op, const QuantizeAttrs& attrs, const Shape& shape) {
  if (shape.size() != 2) fail(op, "transposed codes need a matrix, got {}", to_string(shape));
  return {.dtype = attrs.dtype, .shape = {shape[1], pad_to(shape[0], attrs.pad)}};
}

TensorType codes_type(std::string_view op, const QuantizeAttrs& attrs, const Shape& shape) {
  return attrs.transposed ? transposed_codes(op, attrs, shape) : row_codes(attrs, shape);
}

TensorType group_scales(std::string_view op, const QuantizeAttrs& attrs, const Shape& shape) {
  return {.dtype = Dtype::bf16, .shape = grouped_shape(op, shape, attrs.group)};
}

Results infer_amax(const Attrs&, Types in) {
  for (const TensorType& x : in) need_float("amax", "x", x);
  return {real({}), kFlag};
}

Results infer_any_of(const Attrs&, Types in) {
  for (const TensorType& flag : in) need_bool("any_of", "flag", flag);
  return {kFlag};
}

Results infer_quant_scale(const Attrs& attrs, Types in) {
  need_codes("quant_scale", std::get<QuantizeAttrs>(attrs));
  need_float("quant_scale", "amax", in[0], {});
  return {real({})};
}

Results infer_delayed_scale(const Attrs& attrs, Types in) {
  need_codes("delayed_scale", std::get<QuantizeAttrs>(attrs));
  need_float("delayed_scale", "amax", in[0], {});
  need_rank("delayed_scale", "history", in[1], 1);
  return {real({}), in[1]};
}

Results infer_quantize(const Attrs& attrs, Types in) {
  const auto& q = std::get<QuantizeAttrs>(attrs);
  need_codes("quantize", q);
  need_float("quantize", "x", in[0]);
  need_float("quantize", "scale", in[1], {});
  return {codes_type("quantize", q, in[0].shape)};
}

Results infer_quantize_both(const Attrs& attrs, Types in) {
  const auto& q = std::get<QuantizeAttrs>(attrs);
  need_codes("quantize_both", q);
  need_float("quantize_both", "x", in[0]);
  need_float("quantize_both", "scale", in[1], {});
  return {row_codes(q, in[0].shape), transposed_codes("quantize_both", q, in[0].shape)};
}

Results infer_quantize_groups(const Attrs& attrs, Types in) {
  const auto& q = std::get<QuantizeAttrs>(attrs);
  need_codes("quantize_groups", q);
  need_float("quantize_groups", "x", in[0]);
  return {row_codes(q, in[0].shape), group_scales("quantize_groups", q, in[0].shape)};
}

Results infer_dequantize(const Attrs& attrs, Types in) {
  const auto& q = std::get<QuantizeAttrs>(attrs);
  if (!is_quantized(in[0].dtype))
    fail("dequantize", "codes must be eight-bit floats, got {}", to_string(in[0]));
  need_float("dequantize", "scale", in[1],
             q.group == 0 ? Shape{} : grouped_shape("dequantize", in[0].shape, q.group));
  return {real(in[0].shape)};
}

Results infer_add_quantize(const Attrs& attrs, Types in) {
  const auto& q = std::get<QuantizeAttrs>(attrs);
  need_codes("add_quantize", q);
  need_float("add_quantize", "a", in[0]);
  need_float("add_quantize", "b", in[1], in[0].shape);
  return {real(in[0].shape), row_codes(q, in[0].shape),
          group_scales("add_quantize", q, in[0].shape)};
}

// Results of an op that quantizes per tensor as it stores: the codes, and where no scale is given
// the scale and the flag.
Results quantized_results(std::string_view op, const QuantizeAttrs& q, const Shape& shape,
                          bool scale_given) {
  need_codes(op, q);
  if (scale_given) return {codes_type(op, q, shape)};
  return {codes_type(op, q, shape), {.dtype = Dtype::f32, .shape = {}}, kFlag};
}

Results infer_rms_norm_quantize(const Attrs& attrs, Types in) {
  const auto& a = std::get<NormQuantizeAttrs>(attrs);
  const auto plain = kRmsNorm.infer(a.norm, in.first(std::min<size_t>(in.size(), 3)));
  Results results = quantized_results("rms_norm_quantize", a.q, in[0].shape, !absent(in, 3));
  if (absent(in, 3)) results.push_back(plain[1]);
  return results;
}

Results infer_gated_act_quantize(const Attrs& attrs, Types in) {
  const auto& a = std::get<GatedActQuantizeAttrs>(attrs);
  kGatedAct.infer(a.act, in.first(std::min<size_t>(in.size(), 4)));
  return quantized_results("gated_act_quantize", a.q, in[0].shape, !absent(in, 4));
}

Values decompose_add_quantize(Builder& b, const Node& node) {
  const auto& q = std::get<QuantizeAttrs>(node.attrs);
  const Dtype wide = Dtype::f32;
  const Dtype stream =
      b.graph().phase == Phase::logical ? Dtype::real : b.type(node.operands[0]).dtype;
  const ValueId sum =
      b.emit_typed(OpCode::add, NoAttrs{}, {node.operands[0], node.operands[1]}, {&wide, 1})[0];
  const ValueId narrow = b.emit_typed(OpCode::cast, NoAttrs{}, {sum}, {&stream, 1})[0];
  const auto groups = b.emit(OpCode::quantize_groups, q, {sum});
  return {narrow, groups[0], groups[1]};
}

// Without the absent operands at the end.
Values trimmed(Values operands) {
  while (!operands.empty() && operands.back() == kNoValue) operands.pop_back();
  return operands;
}

// amax, scale and codes of y; or the codes alone with a scale that is given.
Values quantize_result(Builder& b, const QuantizeAttrs& q, ValueId y, ValueId given_scale) {
  if (given_scale != kNoValue) return {b.emit1(OpCode::quantize, q, {y, given_scale})};
  const auto amax = b.emit(OpCode::amax, NoAttrs{}, {y});
  const ValueId scale = b.emit1(OpCode::quant_scale, q, {amax[0]});
  return {b.emit1(OpCode::quantize, q, {y, scale}), scale, amax[1]};
}

Values decompose_rms_norm_quantize(Builder& b, const Node& node) {
  const auto& a = std::get<NormQuantizeAttrs>(node.attrs);
  const Dtype wide[] = {Dtype::f32, Dtype::f32};
  const auto norm =
      b.emit_typed(OpCode::rms_norm, a.norm,
                   trimmed({node.operands[0], operand(node, 1), operand(node, 2)}), wide);
  Values results = quantize_result(b, a.q, norm[0], operand(node, 3));
  if (absent(node, 3)) results.push_back(norm[1]);
  return results;
}

Values decompose_gated_act_quantize(Builder& b, const Node& node) {
  const auto& a = std::get<GatedActQuantizeAttrs>(node.attrs);
  const Dtype wide = Dtype::f32;
  const ValueId y = b.emit_typed(
      OpCode::gated_act, a.act,
      trimmed({node.operands[0], node.operands[1], operand(node, 2), operand(node, 3)}),
      {&wide, 1})[0];
  return quantize_result(b, a.q, y, operand(node, 4));
}

Values decompose_quantize_both(Builder& b, const Node& node) {
  QuantizeAttrs q = std::get<QuantizeAttrs>(node.attrs);
  const ValueId row = b.emit1(OpCode::quantize, q, node.operands);
  q.transposed = true;
  return {row, b.emit1(OpCode::quantize, q, node.operands)};
}

}  // namespace

constinit const OpDef kAmax = {.code = OpCode::amax,
                               .name = "amax",
                               .min_operands = 1,
                               .max_operands = -1,
                               .infer = infer_amax,
                               .statistics = 1};
constinit const OpDef kAnyOf = {.code = OpCode::any_of,
                                .name = "any_of",
                                .min_operands = 1,
                                .max_operands = -1,
                                .infer = infer_any_of,
                                .inplace = kInplaceFirst};
constinit const OpDef kQuantScale = {.code = OpCode::quant_scale,
                                     .name = "quant_scale",
                                     .infer = infer_quant_scale,
                                     .attrs = default_attrs<QuantizeAttrs>,
                                     .statistics = 1};
constinit const OpDef kDelayedScale = {.code = OpCode::delayed_scale,
                                       .name = "delayed_scale",
                                       .min_operands = 2,
                                       .max_operands = 2,
                                       .infer = infer_delayed_scale,
                                       .attrs = default_attrs<QuantizeAttrs>,
                                       .inplace = kInplaceHistory,
                                       .statistics = 1};
constinit const OpDef kQuantize = {.code = OpCode::quantize,
                                   .name = "quantize",
                                   .min_operands = 2,
                                   .max_operands = 2,
                                   .infer = infer_quantize,
                                   .attrs = default_attrs<QuantizeAttrs>};
constinit const OpDef kQuantizeBoth = {.code = OpCode::quantize_both,
                                       .name = "quantize_both",
                                       .min_operands = 2,
                                       .max_operands = 2,
                                       .infer = infer_quantize_both,
                                       .attrs = default_attrs<QuantizeAttrs>,
                                       .decompose = decompose_quantize_both};
constinit const OpDef kQuantizeGroups = {.code = OpCode::quantize_groups,
                                         .name = "quantize_groups",
                                         .infer = infer_quantize_groups,
                                         .attrs = default_attrs<QuantizeAttrs>};
constinit const OpDef kDequantize = {.code = OpCode::dequantize,
                                     .name = "dequantize",
                                     .min_operands = 2,
                                     .max_operands = 2,
                                     .infer = infer_dequantize,
                                     .attrs = default_attrs<QuantizeAttrs>};
constinit const OpDef kAddQuantize = {.code = OpCode::add_quantize,
                                      .name = "add_quantize",
                                      .min_operands = 2,
                                      .max_operands = 2,
                                      .infer = infer_add_quantize,
                                      .attrs = default_attrs<QuantizeAttrs>,
                                      .decompose = decompose_add_quantize,
                                      .inplace = kInplaceEither};
constinit const OpDef kRmsNormQuantize = {.code = OpCode::rms_norm_quantize,
                                          .name = "rms_norm_quantize",
                                          .min_operands = 1,
                                          .max_operands = 4,
                                          .infer = infer_rms_norm_quantize,
                                          .attrs = default_attrs<NormQuantizeAttrs>,
                                          .decompose = decompose_rms_norm_quantize,
                                          .statistics = 0x0a};
constinit const OpDef kGatedActQuantize = {.code = OpCode::gated_act_quantize,
                                           .name = "gated_act_quantize",
                                           .min_operands = 2,
                                           .max_operands = 5,
                                           .infer = infer_gated_act_quantize,
                                           .attrs = default_attrs<GatedActQuantizeAttrs>,
                                           .decompose = decompose_gated_act_quantize};

}  // namespace octet::ops
