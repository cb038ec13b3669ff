// Norms and activations, alone and with the quantizer of their result: one kernel for all.
#include "backends/cuda/params/rows.h"

#include <algorithm>

#include "backends/cuda/target/bind/rows.h"
#include "ir/ops/quantize_layers.h"

namespace octet::cuda {
namespace {

// The op without its quantizer, and the quantizer.
struct BaseLayer {
  const OpDef& op;
  QuantizedLayerAttrs attrs;
  bool quantized = true;
};

BaseLayer base_layer_of(const NodeView& view) {
  const OpDef* layer = quantized_layer(view.node.op);
  if (layer == nullptr) return {op_def(view.node.op), {.layer = view.node.attrs}, false};
  return {*layer, split(view.node.attrs)};
}

// Operands as the kernel that keeps them has them.
bool kept_applies(const NodeView& view, const QuantizedLayerAttrs& attrs) {
  const OpDef& op = op_def(view.node.op);
  const ResultType groups(Dtype::e4m3, {Granularity::Kind::group, 16, Dtype::bf16});
  SlotId at = op.kept;
  const auto is_read_so = [&](ScalePlace place) {
    const bool is_kept_so = ResultType(view.out(std::exchange(at, at + 2))) == groups;
    return is_kept_so && view.in_is(place.operand, {Dtype::bf16});
  };
  return attrs.kept_target == static_cast<double>(kKeptTarget) && !attrs.both &&
         ResultType(view.out(kLayerQ)) == Dtype::e4m3 &&
         std::get<1>(matrix_of(view.in(Unary::x))) % 16 == 0 &&
         std::ranges::all_of(op.scales, is_read_so);
}

bool layer_applies(const NodeView& view) {
  const BaseLayer layer = base_layer_of(view);
  if (!operands_apply(view, layer.op.code)) return false;
  if (!layer.quantized) return is_high_precision(view.out(Unary::y).dtype);
  if (!layer.attrs.q.has_default_scaling()) return false;
  if (layer.attrs.kept_target > 0 && !kept_applies(view, layer.attrs)) return false;
  const OpDef& op = op_def(view.node.op);
  // Measuring an activation goes by the scales of groups.
  const TensorType& x = view.in(op.scales[0].operand);
  if (x.has(Granularity::Kind::tensor) && !view.has(op.store.given_scale)) return false;
  for (const SlotId slot :
       {op.store.given_scale, op.store.history, op.norm.known_mean, op.norm.known_rstd}) {
    if (!view.in_is(slot, {Dtype::f32})) return false;
  }
  return is_gemm_operand(view.out(kLayerQ).dtype);
}

CodesArg codes_of(const NodeView& view, const QuantizedLayerAttrs& attrs) {
  CodesArg codes = codes_with_scale(view, attrs.q);
  const bool is_by_row = !view.out(kLayerQ).layout.transposed;
  (is_by_row ? codes.rows_at : codes.transposed_at) = kLayerQ;
  if (attrs.both) codes.transposed_at = static_cast<int8_t>(op_def(view.node.op).store.transposed);
  if (codes.transposed_at != kAbsent)
    codes.padded_rows = view.out(static_cast<size_t>(codes.transposed_at)).stored_shape()[1];
  return codes;
}

// Places of a norm's own operands and statistics.
void norm_places(const NodeView& view, RowLayerParams& p) {
  const NormSlots& at = op_def(view.node.op).norm;
  p.weight = unquantized_operand(view, at.weight);
  p.bias = unquantized_operand(view, at.bias);
  p.mean_at = result_place(view, at.mean);
  p.rstd_at = result_place(view, at.rstd);
  p.known_mean_at = place(view, at.known_mean);
  p.known_rstd_at = place(view, at.known_rstd);
}

KeptArg kept_at(const NodeView& view, SlotId codes) {
  return {.codes_at = result_place(view, codes),
          .scales_at = result_place(view, static_cast<SlotId>(codes + 1))};
}

RowLayerParams layer_params(const NodeView& view) {
  const BaseLayer layer = base_layer_of(view);
  RowLayerParams p;
  p.layer = row_layer(layer.op.code, layer.attrs.layer);
  p.quantized = layer.quantized;
  const auto places = layer.op.scales;
  p.x = row_operand(view, places[0]);
  const bool gated = places.size() > 1;
  if (gated) p.up = row_operand(view, places[1]);
  std::tie(p.rows, p.cols) = matrix_of(view.in(places[0].operand));
  if (const auto* norm = std::get_if<NormAttrs>(&layer.attrs.layer)) {
    p.eps = static_cast<float>(norm->eps);
    norm_places(view, p);
  }
  if (p.quantized) {
    p.codes = codes_of(view, layer.attrs);
    p.kept_x = kept_at(view, op_def(view.node.op).kept);
    if (gated) p.kept_up = kept_at(view, GatedActQuantize::kept_up);
  } else {
    p.y = unquantized_result(view, Unary::y);
  }
  return p;
}
template <bool kGeneric>
KernelSpec layer_spec(const NodeView& view) {
  RowLayerParams p = layer_params(view);
  p.generic = kGeneric;
  return chosen_spec(KernelId::layer, p);
}
RowKind layer_kind(const NodeView& view) {
  const RowLayerParams p = layer_params(view);
  const Form form = form_of(p);
  return row_kind(form, out_of(p, form));
}

int64_t layer_scratch(const NodeView& view) {
  const BaseLayer layer = base_layer_of(view);
  if (!layer.quantized) return 0;
  return layer_scratch_bytes(layer.op.is_norm ? std::get<0>(matrix_of(view.in(RmsNorm::x))) : 0);
}

}  // namespace

void add_layer_rows(std::vector<Binding>& rows, OpCode op) {
  if (!is_norm_or_activation(op) && quantized_layer(op) == nullptr) return;
  add_rows<layer_applies, layer_kind>(rows, op, layer_scratch, layer_spec<false>, layer_spec<true>);
}

}  // namespace octet::cuda
