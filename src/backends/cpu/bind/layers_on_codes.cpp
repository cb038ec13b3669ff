// Layers whose operands are stored as codes, and layers that quantize their result as they make it
// (ir/ops/quantize_layers.cpp).
#include <algorithm>

#include "backends/cpu/bind/codes.h"
#include "backends/cpu/quantize/quantize.h"
#include "ir/op_def.h"
#include "ir/ops/quantize_layers.h"

namespace octet::cpu {

bool operands_apply(const NodeView& view, size_t n) {
  const auto places = op_def(view.node.op).scales;
  const auto is_read_so = [&](ScalePlace place) {
    const TensorType& type = view.in(place.operand);
    return type.granularity == view.in(places[0].operand).granularity &&
           (!type.is_scaled() || is_in_groups(type));
  };
  if (!std::ranges::all_of(places, is_read_so)) return false;
  for (size_t i = 0; i < n; ++i) {
    if (view.has(i) && !view.in(i).is_scaled() && !is_f32_or_bf16(view.in(i).dtype)) return false;
  }
  return true;
}

bool reads_codes(const NodeView& view) {
  const auto places = op_def(view.node.op).scales;
  if (places.empty() || !view.in(places[0].operand).is_scaled()) return false;
  if (!operands_apply(view, view.node.operands.size())) return false;
  for (size_t i = 0; i < own_results(view); ++i) {
    if (view.gives(i) && !is_f32_or_bf16(view.out(i).dtype)) return false;
  }
  return true;
}

namespace {

// Activations of stored operands: span scratch, the rows being everything but the last axis.
int64_t span_bytes(const NodeView& view) {
  return float_bytes(
      quantize_scratch(rows_of(view.out(GatedAct::y)), group_size(view), view.target.n_threads));
}

LaunchFn prepare_gated_on_codes(const NodeView& view, Context& context) {
  return launcher(
      view, context,
      [group = group_size(view), shape = rows_of(view.out(GatedAct::y))](const Call& call) {
        gated_silu_on_codes({{call.in(GatedAct::gate), call.in(GatedAct::gate_scale), group},
                             {call.in(GatedAct::up), call.in(GatedAct::up_scale), group},
                             call.out(GatedAct::y)},
                            shape, call.scratch<float>(), call.pool);
      });
}

LaunchFn prepare_gated_grad_on_codes(const NodeView& view, Context& context) {
  return launcher(
      view, context,
      [group = group_size(view), shape = rows_of(view.out(GatedActGrad::dgate))](const Call& call) {
        gated_silu_backward_on_codes(
            {{call.in(GatedActGrad::gate), call.in(GatedActGrad::gate_scale), group},
             {call.in(GatedActGrad::up), call.in(GatedActGrad::up_scale), group},
             call.in(GatedActGrad::dy),
             call.out(GatedActGrad::dgate),
             call.out(GatedActGrad::dup),
             call.amax},
            shape, call.scratch<float>(), call.pool);
      });
}

LaunchFn prepare_gelu_on_codes(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [group = group_size(view), shape = rows_of(view.out(Gelu::y))](const Call& call) {
                    gelu_on_codes({call.attrs<GeluAttrs>().kind,
                                   {call.in(Gelu::x), call.in(Gelu::x_scale), group},
                                   {},
                                   call.out(Gelu::y)},
                                  shape, call.scratch<float>(), call.pool);
                  });
}

LaunchFn prepare_gelu_grad_on_codes(const NodeView& view, Context& context) {
  return launcher(
      view, context,
      [group = group_size(view), shape = rows_of(view.out(GeluGrad::dx))](const Call& call) {
        gelu_on_codes({call.attrs<GeluAttrs>().kind,
                       {call.in(GeluGrad::x), call.in(GeluGrad::x_scale), group},
                       call.in(GeluGrad::dy),
                       call.out(GeluGrad::dx),
                       call.amax},
                      shape, call.scratch<float>(), call.pool);
      });
}

bool fused_applies(const NodeView& view) {
  const QuantizedLayer& op = *quantized_layer(view.node.op);
  const OpDef& layer = op_def(op.layer);
  const QuantizedLayerAttrs attrs = split(view.node.attrs);
  if (attrs.kept_target > 0) return false;
  if (!operands_apply(view, layer.operands.size())) return false;
  for (const SlotId slot : {op.given_scale, op.history, op.known_mean, op.known_rstd}) {
    if (!view.in_is(slot, {Dtype::f32})) return false;
  }
  return has_codec(view.out(kLayerQ).dtype);
}

// The layer's first operand, of which all have the shape.
RowShape shape_of(const NodeView& view) {
  return rows_of(view.in(Unary::x));
}

int64_t fused_bytes(const NodeView& view) {
  return float_bytes(quantize_scratch(shape_of(view), group_size(view), view.target.n_threads));
}

// Common part of their bindings: stored operands, and the quantizer of the result.
class Fused {
 public:
  explicit Fused(const NodeView& view)
      : op_(*quantized_layer(view.node.op)),
        q_(split(view.node.attrs).q),
        codes_(
            view, q_,
            split(view.node.attrs).both ? std::optional<SlotId>(op_.q_transposed) : std::nullopt),
        given_(view.has(op_.given_scale)),
        history_(view.has(op_.history) ? view.in(op_.history).n_elems() : 0),
        group_(group_size(view)) {}

  // The op's n-th stored operand.
  QuantizedMatrix matrix(const Call& call, size_t n) const {
    const ScalePlace place = op_def(op_.op).scales[n];
    return {call.in(place.operand), call.in(place.scale), group_};
  }
  OwnScale own(const Call& call) const {
    if (given_) return {};
    return {
        .target = static_cast<float>(q_.target),
        .scale = call.result<float>(kLayerScale),
        .nonfinite = call.result<uint8_t>(kLayerNonfinite),
        .history = {call.data<float>(op_.history), call.result<float>(op_.next_history), history_}};
  }
  TensorCodes codes(const Call& call) const {
    return codes_.at(call, given_ ? *call.data<float>(op_.given_scale) : 1.0f);
  }

 private:
  const QuantizedLayer& op_;
  QuantizeAttrs q_;
  CodesOf codes_;
  bool given_;
  int64_t history_;  // its length, 0 without one
  int64_t group_;    // of the operands, 0 where they are not quantized
};

LaunchFn prepare_norm_quantize(const NodeView& view, Context& context) {
  static_assert(int{RmsNormQuantize::weight} == int{LayerNormQuantize::weight});
  const QuantizedLayer& op = *quantized_layer(view.node.op);
  const bool is_layer = op_def(op.layer).is_centred;
  return launcher(view, context,
                  [fused = Fused(view), &op, is_layer, shape = shape_of(view)](const Call& call) {
                    norm_quantize(
                        {.kind = is_layer ? NormKind::layer : NormKind::rms,
                         .x = fused.matrix(call, 0),
                         .weight = call.in(LayerNormQuantize::weight),
                         .bias = call.in(is_layer ? SlotId{LayerNormQuantize::bias} : kNoSlot),
                         .eps = static_cast<float>(call.attrs<NormQuantizeAttrs>().norm.eps),
                         .mean = call.result<float>(op.mean),
                         .rstd = call.result<float>(op.rstd),
                         .known_mean = call.data<float>(op.known_mean),
                         .known_rstd = call.data<float>(op.known_rstd),
                         .own = fused.own(call),
                         .out = fused.codes(call)},
                        shape, call.scratch<float>(), call.pool);
                  });
}

LaunchFn prepare_gated_act(const NodeView& view, Context& context) {
  return launcher(view, context, [fused = Fused(view), shape = shape_of(view)](const Call& call) {
    gated_silu_quantize({.gate = fused.matrix(call, 0),
                         .up = fused.matrix(call, 1),
                         .own = fused.own(call),
                         .out = fused.codes(call)},
                        shape, call.scratch<float>(), call.pool);
  });
}

LaunchFn prepare_gelu_quantize(const NodeView& view, Context& context) {
  return launcher(view, context, [fused = Fused(view), shape = shape_of(view)](const Call& call) {
    gelu_quantize({.kind = call.attrs<GeluQuantizeAttrs>().act.kind,
                   .x = fused.matrix(call, 0),
                   .own = fused.own(call),
                   .out = fused.codes(call)},
                  shape, call.scratch<float>(), call.pool);
  });
}

const Binding kLayersOnCodesBindings[] = {
    {{OpCode::gated_act, "codes", reads_codes, span_bytes}, prepare_gated_on_codes},
    {{OpCode::gated_act_grad, "codes", reads_codes, span_bytes}, prepare_gated_grad_on_codes},
    {{OpCode::gelu, "codes", reads_codes, span_bytes}, prepare_gelu_on_codes},
    {{OpCode::gelu_grad, "codes", reads_codes, span_bytes}, prepare_gelu_grad_on_codes},
    {{OpCode::rms_norm_quantize, "simd", fused_applies, fused_bytes}, prepare_norm_quantize},
    {{OpCode::layer_norm_quantize, "simd", fused_applies, fused_bytes}, prepare_norm_quantize},
    {{OpCode::gated_act_quantize, "simd", fused_applies, fused_bytes}, prepare_gated_act},
    {{OpCode::gelu_quantize, "simd", fused_applies, fused_bytes}, prepare_gelu_quantize},
};

}  // namespace

std::span<const Binding> layers_on_codes_bindings() {
  return kLayersOnCodesBindings;
}

}  // namespace octet::cpu
