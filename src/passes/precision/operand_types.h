// What a GEMM reads of an operand in eight bits: its type and its quantizer, by format and options.
#pragma once

#include "passes/precision/linear_groups.h"
#include "passes/precision/quantize_linears.h"

namespace octet {

// Of one scale for the tensor. `read`: the type that the operand is read in.
QuantizeAttrs tensor_attrs(const QuantizeLinearsOptions& options, const OperandFormat& format,
                           OperandKind kind, Dtype read);

// Of scales by block: what they are stored as, and how they are made.
Dtype block_scales(const QuantizeLinearsOptions& options, const OperandFormat& format);
QuantizeAttrs block_attrs(const QuantizeLinearsOptions& options, const OperandFormat& format);
// Squares, or rows or groups along the axis that a GEMM reduces, of an operand of so many rows.
ResultType block_type(const QuantizeLinearsOptions& options, const OperandFormat& format, int axis,
                      int64_t n_rows);

// Whether these GEMMs read K-major data: where one of their factors has blocks or is not quantized,
// all lie as their tensors do.
bool is_k_major(const QuantizeLinearsOptions& options, const LinearGroup& group, GemmRole role);

}  // namespace octet
