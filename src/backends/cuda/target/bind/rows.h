// Shared parts of the bindings of the row kernels: operands that may be codes in groups.
#pragma once

#include <vector>

#include "backends/cuda/target/bind/binding.h"
#include "backends/cuda/target/choose/rows.h"
#include "formats/bits.h"
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

inline UnquantizedArg unquantized_operand(const NodeView& view, size_t i) {
  if (!view.has(i)) return {};
  return {.at = static_cast<int8_t>(i), .dtype = view.in(i).dtype};
}
inline UnquantizedArg unquantized_result(const NodeView& view, size_t i) {
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
// A per-tensor quantizer inside an op, but for the places of its codes.
inline CodesArg codes_with_scale(const NodeView& view, const QuantizeAttrs& q) {
  const StoreSlots& at = op_def(view.node.op).store;
  CodesArg codes;
  codes.given_at = place(view, at.given_scale);
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

// One scale that is a constant exact in BF16, a power of two for instance, is read as that.
inline Dtype one_scale_dtype(const NodeView& view, size_t operand) {
  const auto value = constant_of(view, operand);
  const bool is_short = value && (bits_of(static_cast<float>(*value)) & 0xffff) == 0;
  return is_short ? Dtype::bf16 : Dtype::f32;
}
inline RowOperand row_operand(const NodeView& view, ScalePlace place) {
  RowOperand operand = row_operand(view, place.operand);
  const TensorType& type = view.in(place.operand);
  if (!type.is_scaled()) return operand;
  const bool has_one = type.has(Granularity::Kind::tensor);
  operand.group = has_one ? kOneGroup : static_cast<int32_t>(type.granularity.size);
  operand.scales_at = static_cast<int8_t>(place.scale);
  operand.scales = has_one ? one_scale_dtype(view, place.scale) : type.granularity.scale;
  return operand;
}

// The layer's own operands: those that may be quantized are so alike, in groups along the rows or,
// of activations, with one scale; all others are in high precision.
bool operands_apply(const NodeView& view, OpCode layer);

// An op's rows: codes, vectors of one type, and element by element.
enum class RowKind : uint8_t { codes, vectors, generic };
constexpr RowKind row_kind(Form form, Out out = Out::unquantized) {
  if (form == Form::any || out == Out::any) return RowKind::generic;
  return form == Form::groups ? RowKind::codes : RowKind::vectors;
}
template <bool (*kApplies)(const NodeView&), RowKind (*kKindOf)(const NodeView&), RowKind kKind>
bool kind_applies(const NodeView& view) {
  return kApplies(view) && (kKind == RowKind::generic || kKindOf(view) == kKind);
}
template <bool (*kApplies)(const NodeView&), RowKind (*kKindOf)(const NodeView&)>
void add_rows(std::vector<Binding>& rows, OpCode op, int64_t (*scratch)(const NodeView&),
              KernelSpec (*spec)(const NodeView&), KernelSpec (*generic_spec)(const NodeView&)) {
  using enum RowKind;
  rows.push_back({{op, "codes", kind_applies<kApplies, kKindOf, codes>, scratch}, spec});
  rows.push_back({{op, "vectors", kind_applies<kApplies, kKindOf, vectors>, scratch}, spec});
  rows.push_back({{op, "generic", kApplies, scratch, {.generic = true}}, generic_spec});
}

// Those of a norm or an activation, alone or with its quantizer; none of another op.
void add_layer_rows(std::vector<Binding>& rows, OpCode op);

}  // namespace octet::cuda
