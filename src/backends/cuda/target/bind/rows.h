// What the bindings of the row kernels share: operands that may be codes in groups.
#pragma once

#include <tuple>

#include "backends/cuda/params/rows.h"
#include "backends/cuda/target/bind/binding.h"
#include "ir/op_def.h"

namespace octet::cuda {

inline AmaxArg amax_result(const NodeView& view) {
  if (!emits_amax(view.node.attrs)) return {};
  const auto at = static_cast<int8_t>(op_def(view.node.op).own_results());
  return {.amax_at = at, .flag_at = static_cast<int8_t>(at + 1)};
}

inline int8_t place(const NodeView& view, size_t operand) {
  return view.has(operand) ? static_cast<int8_t>(operand) : kAbsent;
}
inline int8_t result_place(const NodeView& view, size_t result) {
  return view.gives(result) ? static_cast<int8_t>(result) : kAbsent;
}

inline std::tuple<int64_t, int64_t> matrix_of(const TensorType& type) {
  const Rows shape = rows_of(type);
  return {shape.rows, shape.cols};
}

inline WideArg wide_operand(const NodeView& view, size_t i) {
  if (!view.has(i)) return {};
  return {.at = static_cast<int8_t>(i), .dtype = view.in(i).dtype};
}
inline WideArg wide_result(const NodeView& view, size_t i) {
  if (i >= own_results(view) || !view.gives(i)) return {};
  return {.at = static_cast<int8_t>(i), .dtype = view.out(i).dtype};
}

inline RowOperand row_operand(const NodeView& view, size_t i) {
  return {.at = static_cast<int8_t>(i),
          .scales_at = kAbsent,
          .dtype = view.in(i).dtype,
          .scales = Dtype::bf16,
          .group = 0};
}
inline bool has_one_scale(const NodeView& view, const StoredPlace& stored) {
  return view.has(stored.scale) && view.in(stored.scale).shape == kOneScale &&
         rows_of(view.in(stored.operand)).rows > 1;
}
// The operands and results of a per-tensor quantizer inside an op.
struct ScaleSlots {
  size_t given, history;                  // operands
  size_t scale, nonfinite, next_history;  // results
};
inline CodesArg codes_with_scale(const NodeView& view, const ScaleSlots& at,
                                 const QuantizeAttrs& q) {
  CodesArg codes;
  codes.given_at = place(view, at.given);
  codes.history_at = place(view, at.history);
  codes.scale_at = result_place(view, at.scale);
  codes.flag_at = result_place(view, at.nonfinite);
  codes.next_history_at = result_place(view, at.next_history);
  if (view.has(at.history)) codes.n_history = static_cast<int32_t>(view.in(at.history).n_elems());
  codes.dtype = view.out(0).dtype;
  codes.target = static_cast<float>(q.target);
  codes.limit = static_cast<float>(q.limit);
  return codes;
}

// Codes where the op's attributes have a group.
inline RowOperand row_operand(const NodeView& view, const StoredPlace& stored, const Attrs& attrs) {
  RowOperand operand = row_operand(view, stored.operand);
  operand.group = static_cast<int32_t>(stored_group(attrs));
  if (operand.group == 0) return operand;
  if (has_one_scale(view, stored)) operand.group = kOneGroup;
  operand.scales_at = static_cast<int8_t>(stored.scale);
  operand.scales = view.in(stored.scale).dtype;
  return operand;
}

// The layer's own operands: stored ones are codes with wide scales where there is a group, all
// others are wide.
bool operands_apply(const NodeView& view, OpCode layer, const Attrs& attrs);

std::span<const Binding> row_layer_bindings();

}  // namespace octet::cuda
