// Which rows of norms, activations and their gradients there are, and what parameters each takes:
// read by the plan, which chooses one, and by the kernels (kernels/{norm,activation,layer}).
#pragma once

#include "backends/cuda/params/rows.h"

namespace octet::cuda {

inline constexpr int kChunk = 16;

// The types of a kernel's operands: all f32; all bf16; all fp16; e4m3 codes in groups of 16 with
// bf16 scales, and bf16 for the others; or whatever the operands say, element by element.
enum class Form : int { f32, bf16, fp16, groups, any };
// What a layer kernel writes: an unquantized result, or codes of one type; Out::any does both, by
// the arguments' types.
enum class Out : int { unquantized, e4m3, hif8, any };

OCTET_HOST_DEVICE constexpr bool is_short(Form form) {
  return form == Form::bf16 || form == Form::fp16;
}

// The form of a matrix by itself.
constexpr Form form_of(const RowOperand& operand, int64_t cols) {
  if (cols <= 0 || cols % kChunk != 0) return Form::any;
  if (operand.group != 0) {
    const bool fits = (operand.group == kChunk || operand.group == kOneGroup) &&
                      operand.dtype == Dtype::e4m3 && operand.scales == Dtype::bf16;
    return fits ? Form::groups : Form::any;
  }
  if (operand.dtype == Dtype::f32) return Form::f32;
  if (operand.dtype == Dtype::fp16) return Form::fp16;
  return operand.dtype == Dtype::bf16 ? Form::bf16 : Form::any;
}
// Whether an operand that is not stored as codes has the form's plain type.
constexpr bool goes_with(Form form, Dtype dtype) {
  if (form == Form::any) return true;
  return dtype == (form == Form::f32 ? Dtype::f32 : form == Form::fp16 ? Dtype::fp16 : Dtype::bf16);
}
constexpr bool goes_with(Form form, const UnquantizedArg& arg) {
  return arg.at == kAbsent || goes_with(form, arg.dtype);
}
// Results may be f32 in every form, and fp16 in its own, bf16 in the others; in any all.
constexpr bool is_result(Form form, const UnquantizedArg& arg) {
  const Dtype other = form == Form::fp16 ? Dtype::fp16 : Dtype::bf16;
  return arg.at == kAbsent || form == Form::any || arg.dtype == Dtype::f32 || arg.dtype == other;
}

// The kernels from codes to codes know no limit.
constexpr Form form_of(const RowLayerParams& p) {
  if (p.generic || (is_norm(p.layer) && p.cols > kFastCols)) return Form::any;
  const Form form = form_of(p.x, p.cols);
  if (form == Form::groups && p.codes.limit > 0) return Form::any;
  if (p.layer == RowLayer::gated_silu && form_of(p.up, p.cols) != form) return Form::any;
  if (!goes_with(form, p.weight) || !goes_with(form, p.bias)) return Form::any;
  return is_result(form, p.y) ? form : Form::any;
}
constexpr Out out_of(const RowLayerParams& p, Form form) {
  if (form == Form::any) return Out::any;
  if (!p.quantized) return Out::unquantized;
  if (p.codes.dtype == Dtype::e4m3) return Out::e4m3;
  return p.codes.dtype == Dtype::hif8 && is_short(form) ? Out::hif8 : Out::any;
}

constexpr Form form_of(const NormGradParams& p) {
  if (p.generic || p.cols > kFastCols) return Form::any;
  const Form form = form_of(p.x, p.cols);
  if (form == Form::f32 && p.amax.amax_at != kAbsent) return Form::any;
  const bool fits = goes_with(form, p.dy.dtype) && goes_with(form, p.weight) &&
                    goes_with(form, p.addend) && is_result(form, p.dx);
  return fits ? form : Form::any;
}

constexpr Form form_of(const ActGradParams& p) {
  if (p.generic) return Form::any;
  const Form form = form_of(p.x, p.cols);
  if (p.layer == RowLayer::gated_silu && form_of(p.up, p.cols) != form) return Form::any;
  const bool fits =
      goes_with(form, p.dy.dtype) && is_result(form, p.first) && is_result(form, p.second);
  return fits ? form : Form::any;
}

}  // namespace octet::cuda
