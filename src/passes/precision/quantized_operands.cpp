#include "passes/precision/quantized_operands.h"

#include <fmt/format.h>
#include <algorithm>

#include "base/philox.h"
#include "formats/codec.h"

namespace octet {
namespace {

using Kind = OperandKind;

QuantizeAttrs block_attrs(const OperandFormat& format, ScaleRule mx_rule) {
  const Dtype scales = format.granularity.scale;
  return {.target = format.target,
          .rule = scales == Dtype::e8m0  ? mx_rule
                  : scales == Dtype::f32 ? ScaleRule::linear
                                         : ScaleRule::power_ceil};
}

// Squares, or rows or groups along the axis that the GEMM reduces, of an operand of so many rows.
ResultType block_type(const LinearOperand& operand, int64_t n_rows) {
  using enum Granularity::Kind;
  const OperandFormat& format = operand.format();
  Granularity by = format.granularity;
  if (operand.axis == 0 && by.kind == row) by = {column_group, n_rows, by.scale};
  if (operand.axis == 0 && by.kind == group && by.size > 1) by.kind = column_group;
  return {format.dtype, by};
}

// Of the words that round a gradient: by its linear, each of those that share a scale its own.
int64_t stream_of(const LinearOperand& operand) {
  const ValueIds& gradients = operand.group.gradients;
  const auto place = std::ranges::find(gradients, operand.value) - gradients.begin();
  return static_cast<int64_t>(name_hash(fmt::format("{}.{}", operand.site(), place)));
}

// Tokens are padded, where they are the reduction: both factors of wgrad. Weights are as long as
// the codes that they meet.
ResultType transposed_type(const LinearOperand& operand) {
  return ResultType(operand.format().dtype).transposed(operand.kind == Kind::w ? 1 : kPadRows);
}

}  // namespace

QuantizedOperand QuantizedOperands::of(const LinearOperand& operand) {
  const bool is_block = operand.format().is_block();
  const bool transposed = operand.axis == 0 && is_k_major(operand.group, operand.role);
  ResultType type = transposed ? transposed_type(operand) : operand.format().dtype;
  if (is_block) type = block_type(operand, rewriter_.from().type(operand.value).shape[0]);
  const auto it = made_.find(key(operand, type));
  if (it != made_.end()) return it->second;
  return made_[key(operand, type)] =
             is_block ? in_blocks(operand, type) : with_one_scale(operand, type);
}

ValueId QuantizedOperands::dequantized(const LinearOperand& operand) {
  const QuantizedOperand read = of(operand);
  const Dtype dtype = rewriter_.from().type(operand.value).dtype;
  return b_.dequantize(read.q, read.scale, dtype == Dtype::fp16 ? Dtype::f32 : dtype);
}

QuantizedOperands::Key QuantizedOperands::key(const LinearOperand& operand,
                                              const ResultType& type) {
  return {operand.value, operand.kind, type.dtype, type.granularity.kind, type.layout.transposed};
}

// All of a linear's operands lie as their tensors do where one has blocks or is not quantized.
bool QuantizedOperands::is_k_major(const LinearGroup& group, GemmRole role) const {
  const auto has_one_scale = [&](Kind kind) {
    const OperandFormat& format = group.format(kind, role);
    return format.quantized && !format.is_block();
  };
  return options_.k_major && !group.is_depthwise && has_one_scale(Kind::x) &&
         has_one_scale(Kind::w) && has_one_scale(Kind::dy);
}

QuantizeAttrs QuantizedOperands::attrs(const LinearOperand& operand) const {
  const OperandFormat& format = operand.format();
  QuantizeAttrs attrs{.target = format.target};
  attrs.limit = scales_.limit(operand);
  const Rounding rounding = options_.gradient_rounding;
  const bool is_nearest =
      rounding == Rounding::near || rounding == find_format(format.dtype).nearest;
  const bool is_rounded =
      operand.kind == Kind::dy && !is_nearest && rounding_supported(format.dtype, rounding);
  if (!is_rounded) return attrs;
  attrs.rounding = rounding;
  if (rounding == Rounding::sr) attrs.stream = stream_of(operand);
  // Times a scale that is no power of two, all bits of the product are drawn from.
  if (scales_.are_powers()) attrs.source = rewriter_.from().type(operand.value).dtype;
  return attrs;
}

ValueIds QuantizedOperands::operands(const LinearOperand& operand, const QuantizeAttrs& attrs,
                                     ValueId scale) {
  ValueIds read{rewriter_.map(operand.value), scale};
  if (attrs.rounding != Rounding::sr) return read;
  const GraphInput* draw = b_.graph().find_input(kRoundingDraw);
  read.push_back(draw != nullptr ? draw->value
                                 : b_.input(InputKind::batch, std::string(kRoundingDraw),
                                            {.dtype = Dtype::u32, .shape = {3}}));
  return read;
}

QuantizedOperand QuantizedOperands::with_one_scale(const LinearOperand& operand,
                                                   const ResultType& type) {
  const auto& [group, value, kind, role, axis] = operand;
  const OperandFormat& format = operand.format();
  const ValueId scale = scales_.of(operand);
  if (kind == Kind::w) {
    if (const Node* stored = stored_weight(rewriter_.from(), value, format.dtype)) {
      const ValueId q = rewriter_.map(stored->in(Dequantize::q));
      return {type.layout.transposed ? b_.laid_out(q, true) : q, scale};
    }
    if (kept_.keeps_codes(group)) return {kept_.codes(value, attrs(operand), type, scale), scale};
  }
  const QuantizeAttrs how = attrs(operand);
  const ValueIds read = operands(operand, how, scale);
  const bool keeps_x = kind == Kind::x && !group.formats.backward_x && kept_.keeps_x(format);
  if (!is_k_major(group, GemmRole::wgrad) || !(kind == Kind::dy || keeps_x))
    return {b_.emit_typed(OpCode::quantize, how, read, {type})[0], scale};
  const ResultTypes types{format.dtype, transposed_type(operand)};
  const auto codes = b_.emit_typed(OpCode::quantize_both, how, read, types);
  for (const SlotId layout : {QuantizeBoth::q, QuantizeBoth::q_transposed})
    made_[key(operand, types[layout])] = {codes[layout], scale};
  return made_[key(operand, type)];
}

QuantizedOperand QuantizedOperands::in_blocks(const LinearOperand& operand,
                                              const ResultType& type) {
  const OperandFormat& format = operand.format();
  ValueId read = rewriter_.map(operand.value);
  if (operand.kind == Kind::x && operand.axis == 0 && format.granularity.scale == Dtype::bf16 &&
      type.granularity.kind != Granularity::Kind::block) {
    LinearOperand forward = operand;
    forward.axis = 1;
    read = dequantized(forward);
  } else if (operand.kind != Kind::w) {
    scales_.amax({measured_value(rewriter_.from(), operand)});
  }
  const auto results =
      b_.emit_typed(OpCode::quantize_groups, block_attrs(format, options_.mx_rule), {read}, {type});
  return {results[QuantizeGroups::q], results[QuantizeGroups::scale]};
}

}  // namespace octet
