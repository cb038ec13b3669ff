// Which kernels norms, activations and their gradients, rotary embedding and biases launch: pure
// functions of the parameters, which the plan's rows call. The module launches what they say.
#pragma once

#include "backends/cuda/params/rows.h"
#include "backends/cuda/target/choose/kernel_names.h"
#include "math/row_layers.h"

namespace octet::cuda {

// The form of a matrix by itself.
constexpr Form form_of(const RowOperand& operand, int64_t cols) {
  if (cols <= 0 || cols % kRowChunk != 0) return Form::any;
  if (operand.group != 0) {
    const bool fits = (operand.group == kRowChunk || operand.group == kOneGroup) &&
                      operand.dtype == Dtype::e4m3 && operand.scales == Dtype::bf16;
    return fits ? Form::groups : Form::any;
  }
  if (operand.dtype == Dtype::f32) return Form::f32;
  if (operand.dtype == Dtype::fp16) return Form::fp16;
  return operand.dtype == Dtype::bf16 ? Form::bf16 : Form::any;
}
// True if an operand that is not stored as codes has the form's plain type.
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

// Fill in the form and what is launched.
void choose_kernels(RowLayerParams& p);
void choose_kernels(NormGradParams& p);
void choose_kernels(ActGradParams& p);
void choose_kernels(GradCodesParams& p);
void choose_kernels(RopeParams& p);
void choose_kernels(BiasParams& p);  // without bias: column_sum

// Kernels that are launched then.
KernelNames launches_of(const RowLayerParams& p);
KernelNames launches_of(const NormGradParams& p);
KernelNames launches_of(const ActGradParams& p);
KernelNames launches_of(const GradCodesParams& p);
KernelNames launches_of(const RopeParams& p);
KernelNames launches_of(const BiasParams& p);

}  // namespace octet::cuda
