// Layers that quantize their result as they make it (ir/ops/quantize_layers.cpp).
#include "ir/ops/quantize_layers.h"
#include "backends/cpu/bind/codes.h"

namespace octet::cpu {
namespace {

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
  const int64_t group = group_size(view, op_def(view.node.op).scales[0].operand);
  return float_bytes(quantize_scratch(shape_of(view), group, view.target.n_threads));
}

// What all of them bind: operands, and the quantizer of the result.
class Fused {
 public:
  explicit Fused(const NodeView& view)
      : op_(*quantized_layer(view.node.op)),
        attrs_(split(view.node.attrs)),
        types_(view),
        codes_(view, attrs_.q,
               attrs_.both ? std::optional<SlotId>(op_.q_transposed) : std::nullopt),
        given_(view.has(op_.given_scale)),
        history_(view.has(op_.history) ? view.in(op_.history).n_elems() : 0),
        group_(group_size(view, op_def(op_.op).scales[0].operand)) {}

  In plain(const LaunchArgs& args, size_t i) const { return types_.operand(args, i); }
  // The op's n-th stored operand.
  QuantizedMatrix matrix(const LaunchArgs& args, size_t n) const {
    const ScalePlace place = op_def(op_.op).scales[n];
    const In x = types_.operand(args, place.operand);
    if (group_ == 0) return {x};
    return {x, types_.operand(args, place.scale), group_};
  }
  // nullptr where the statistics are given.
  float* mean(const LaunchArgs& args) const { return data_out<float>(args, op_.mean); }
  float* rstd(const LaunchArgs& args) const { return data_out<float>(args, op_.rstd); }
  // nullptr where they are made.
  const float* known_mean(const LaunchArgs& args) const {
    return data<float>(args, op_.known_mean);
  }
  const float* known_rstd(const LaunchArgs& args) const {
    return data<float>(args, op_.known_rstd);
  }
  OwnScale own(const LaunchArgs& args) const {
    if (given_) return {};
    OwnScale own{.target = static_cast<float>(attrs_.q.target),
                 .scale = data_out<float>(args, kLayerScale),
                 .nonfinite = data_out<uint8_t>(args, kLayerNonfinite)};
    if (history_ > 0)
      own.history = {data<float>(args, op_.history), data_out<float>(args, op_.next_history),
                     history_};
    return own;
  }
  TensorCodes codes(const LaunchArgs& args) const {
    return codes_.at(args, given_ ? *data<float>(args, op_.given_scale) : 1.0f);
  }

 private:
  const QuantizedLayer& op_;
  QuantizedLayerAttrs attrs_;
  NodeTypes types_;
  CodesOf codes_;
  bool given_;
  int64_t history_;  // its length, 0 without one
  int64_t group_;    // of the operands, 0 where they are not quantized
};

LaunchFn prepare_norm_quantize(const NodeView& view, Context& context) {
  static_assert(int{RmsNormQuantize::weight} == int{LayerNormQuantize::weight});
  const bool is_layer = op_def(quantized_layer(view.node.op)->layer).is_centred;
  const auto eps = static_cast<float>(view.attrs<NormQuantizeAttrs>().norm.eps);
  return [fused = Fused(view), is_layer, eps, shape = shape_of(view),
          &pool = context.pool](const LaunchArgs& args) {
    norm_quantize({.kind = is_layer ? NormKind::layer : NormKind::rms,
                   .x = fused.matrix(args, 0),
                   .weight = fused.plain(args, LayerNormQuantize::weight),
                   .bias = is_layer ? fused.plain(args, LayerNormQuantize::bias) : In{},
                   .eps = eps,
                   .mean = fused.mean(args),
                   .rstd = fused.rstd(args),
                   .known_mean = fused.known_mean(args),
                   .known_rstd = fused.known_rstd(args),
                   .own = fused.own(args),
                   .out = fused.codes(args)},
                  shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_gated_act(const NodeView& view, Context& context) {
  return
      [fused = Fused(view), shape = shape_of(view), &pool = context.pool](const LaunchArgs& args) {
        gated_silu_quantize({.gate = fused.matrix(args, 0),
                             .up = fused.matrix(args, 1),
                             .own = fused.own(args),
                             .out = fused.codes(args)},
                            shape, scratch_of(args), pool);
      };
}

LaunchFn prepare_gelu_quantize(const NodeView& view, Context& context) {
  const GeluKind kind = view.attrs<GeluQuantizeAttrs>().act.kind;
  return [fused = Fused(view), kind, shape = shape_of(view),
          &pool = context.pool](const LaunchArgs& args) {
    gelu_quantize({.kind = kind,
                   .x = fused.matrix(args, 0),
                   .own = fused.own(args),
                   .out = fused.codes(args)},
                  shape, scratch_of(args), pool);
  };
}

const Binding kQuantizeLayersBindings[] = {
    {{OpCode::rms_norm_quantize, "simd", fused_applies, fused_bytes}, prepare_norm_quantize},
    {{OpCode::layer_norm_quantize, "simd", fused_applies, fused_bytes}, prepare_norm_quantize},
    {{OpCode::gated_act_quantize, "simd", fused_applies, fused_bytes}, prepare_gated_act},
    {{OpCode::gelu_quantize, "simd", fused_applies, fused_bytes}, prepare_gelu_quantize},
};

}  // namespace

std::span<const Binding> quantize_layer_bindings() {
  return kQuantizeLayersBindings;
}

}  // namespace octet::cpu
