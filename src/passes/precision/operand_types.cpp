#include "passes/precision/operand_types.h"

#include <algorithm>
#include <array>

#include "formats/codec.h"

namespace octet {

QuantizeAttrs tensor_attrs(const QuantizeLinearsOptions& options, const OperandFormat& format,
                           OperandKind kind, Dtype read) {
  QuantizeAttrs attrs{.target = format.target};
  const bool is_rounded = kind == OperandKind::dy && options.gradient_rounding != Rounding::near &&
                          rounding_supported(format.dtype, options.gradient_rounding);
  if (!is_rounded) return attrs;
  attrs.rounding = options.gradient_rounding;
  // Times a scale that is no power of two, all bits of the product are drawn from.
  if (has_power_scales(options.scaling)) attrs.source = read;
  return attrs;
}

Dtype block_scales(const QuantizeLinearsOptions& options, const OperandFormat& format) {
  if (format.granularity.scale == Dtype::e8m0) return Dtype::e8m0;
  return options.block_scale == BlockScale::max ? Dtype::f32 : Dtype::bf16;
}

QuantizeAttrs block_attrs(const QuantizeLinearsOptions& options, const OperandFormat& format) {
  const Dtype scales = block_scales(options, format);
  return {.target = format.target,
          .rule = scales == Dtype::e8m0  ? options.mx_rule
                  : scales == Dtype::f32 ? ScaleRule::linear
                                         : ScaleRule::power_ceil};
}

ResultType block_type(const QuantizeLinearsOptions& options, const OperandFormat& format, int axis,
                      int64_t n_rows) {
  using enum Granularity::Kind;
  Granularity by = format.granularity;
  by.scale = block_scales(options, format);
  if (axis == 0 && by.kind == row) by = {column_group, n_rows, by.scale};
  if (axis == 0 && by.kind == group && by.size > 1) by.kind = column_group;
  return {format.dtype, by};
}

bool is_k_major(const QuantizeLinearsOptions& options, const LinearGroup& group, GemmRole role) {
  using enum OperandKind;
  return options.k_major && std::ranges::all_of(std::array{x, w, dy}, [&](OperandKind kind) {
           const OperandFormat& format = group.format(kind, role);
           return format.quantized && !format.is_block();
         });
}

}  // namespace octet
