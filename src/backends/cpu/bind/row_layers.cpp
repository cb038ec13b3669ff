// Activations, of values or of codes, and norms and activations that quantize their result as they
// make it: ops that ir/ops/quantize_layers.h lists. norm.cpp has the other norms.
#include <algorithm>
#include <vector>

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

// The op's n-th operand that may be quantized, absent where it has none.
class StoredOperands {
 public:
  explicit StoredOperands(const NodeView& view)
      : places_(op_def(view.node.op).scales), group_(group_size(view)) {}
  QuantizedMatrix at(const Call& call, size_t n) const {
    if (n >= places_.size()) return {};
    return {call.in(places_[n].operand), call.in(places_[n].scale), group_};
  }
  CodedOperands both(const Call& call) const { return {at(call, 0), at(call, 1)}; }
  bool are_coded() const { return group_ != 0; }

 private:
  std::span<const ScalePlace> places_;
  int64_t group_;  // 0 where they are not quantized
};

LaunchFn prepare_activation(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [from = StoredOperands(view), layer = row_layer(view.node.op, view.node.attrs),
                   shape = rows_of(view.out(GatedAct::y))](const Call& call) {
                    const CodedOperands x = from.both(call);
                    const ActivationArgs io{layer, x.x.x, x.up.x, call.out(GatedAct::y)};
                    if (!from.are_coded()) return activate(io, shape.rows * shape.cols, call.pool);
                    activate_codes(x, io, shape, call.scratch<float>(), call.pool);
                  });
}

LaunchFn prepare_activation_grad(const NodeView& view, Context& context) {
  using Op = GatedActGrad;  // of a GELU the first operands and the first result
  static_assert(int{Op::dy} == int{GeluGrad::dy} && int{Op::dgate} == int{GeluGrad::dx});
  return launcher(view, context,
                  [from = StoredOperands(view), layer = row_layer(view.node.op, view.node.attrs),
                   shape = rows_of(view.out(Op::dgate))](const Call& call) {
                    const CodedOperands x = from.both(call);
                    const bool gated = layer == RowLayer::gated_silu;
                    const ActivationBackward io{.layer = layer,
                                                .x = x.x.x,
                                                .up = x.up.x,
                                                .dy = call.in(Op::dy),
                                                .dx = call.out(Op::dgate),
                                                .dup = gated ? call.out(Op::dup) : Out{},
                                                .amax = call.amax};
                    if (!from.are_coded())
                      return activate_backward(io, shape.rows * shape.cols, call.pool);
                    activate_codes_backward(x, io, shape, call.scratch<float>(), call.pool);
                  });
}

bool fused_applies(const NodeView& view) {
  const OpDef& op = op_def(view.node.op);
  if (split(view.node.attrs).kept_target > 0) return false;
  if (!operands_apply(view, quantized_layer(op.code)->operands.size())) return false;
  for (const SlotId slot :
       {op.store.given_scale, op.store.history, op.norm.known_mean, op.norm.known_rstd}) {
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

// Common part of their bindings: the quantizer of the result.
class Fused {
 public:
  explicit Fused(const NodeView& view)
      : at_(op_def(view.node.op).store),
        q_(split(view.node.attrs).q),
        codes_(view, q_,
               split(view.node.attrs).both ? std::optional(at_.transposed) : std::nullopt),
        given_(view.has(at_.given_scale)),
        history_(view.has(at_.history) ? view.in(at_.history).n_elems() : 0) {}

  OwnScale own(const Call& call) const {
    if (given_) return {};
    return {
        .target = static_cast<float>(q_.target),
        .scale = call.result<float>(at_.scale),
        .nonfinite = call.result<uint8_t>(at_.nonfinite),
        .history = {call.data<float>(at_.history), call.result<float>(at_.next_history), history_}};
  }
  TensorCodes codes(const Call& call) const {
    return codes_.at(call, given_ ? *call.data<float>(at_.given_scale) : 1.0f);
  }

 private:
  const StoreSlots& at_;
  QuantizeAttrs q_;
  CodesOf codes_;
  bool given_;
  int64_t history_;  // its length, 0 without one
};

LaunchFn prepare_norm_quantize(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [from = StoredOperands(view), fused = Fused(view), kind = norm_kind(view),
                   &at = op_def(view.node.op).norm, shape = shape_of(view)](const Call& call) {
                    norm_quantize(
                        {.kind = kind,
                         .x = from.at(call, 0),
                         .weight = call.in(at.weight),
                         .bias = call.in(at.bias),
                         .eps = static_cast<float>(call.attrs<NormQuantizeAttrs>().layer.eps),
                         .mean = call.result<float>(at.mean),
                         .rstd = call.result<float>(at.rstd),
                         .known_mean = call.data<float>(at.known_mean),
                         .known_rstd = call.data<float>(at.known_rstd),
                         .own = fused.own(call),
                         .out = fused.codes(call)},
                        shape, call.scratch<float>(), call.pool);
                  });
}

LaunchFn prepare_activation_quantize(const NodeView& view, Context& context) {
  const OpCode op = quantized_layer(view.node.op)->code;
  return launcher(
      view, context,
      [from = StoredOperands(view), fused = Fused(view),
       layer = row_layer(op, split(view.node.attrs).layer),
       shape = shape_of(view)](const Call& call) {
        const auto [x, up] = from.both(call);
        activation_quantize(
            {.layer = layer, .x = x, .up = up, .own = fused.own(call), .out = fused.codes(call)},
            shape, call.scratch<float>(), call.pool);
      });
}

}  // namespace

std::span<const Binding> row_layer_bindings() {
  static const std::vector<Binding> all = [] {
    std::vector<Binding> rows;
    for (int i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<OpCode>(i);
      const bool is_gradient = is_activation_gradient(op);
      if (is_activation(op) || is_gradient) {
        const auto prepare = is_gradient ? prepare_activation_grad : prepare_activation;
        rows.push_back({{op, "simd", all_f32_or_bf16}, prepare});
        rows.push_back({{op, "codes", reads_codes, span_bytes}, prepare});
      }
      if (const OpDef* layer = quantized_layer(op)) {
        rows.push_back({{op, "simd", fused_applies, fused_bytes},
                        layer->is_norm ? prepare_norm_quantize : prepare_activation_quantize});
      }
    }
    return rows;
  }();
  return all;
}

}  // namespace octet::cpu
