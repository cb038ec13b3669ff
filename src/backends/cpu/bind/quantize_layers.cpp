// Layers that quantize their result as they make it (ir/ops/quantize_layers.cpp).
#include "backends/cpu/bind/codes.h"
#include "ir/op_def.h"

namespace octet::cpu {
namespace {

// The op without its quantizer: its attributes, and how many operands it has.
struct Layer {
  Attrs attrs;
  QuantizeAttrs q;
  bool both;
  OpCode op;
  size_t n_operands() const { return static_cast<size_t>(op_def(op).max_operands); }
  int64_t group() const { return stored_group(attrs); }
};

Layer layer_of(const NodeView& view) {
  if (const auto* a = std::get_if<NormQuantizeAttrs>(&view.node.attrs)) {
    const bool rms = view.node.op == OpCode::rms_norm_quantize;
    return {a->norm, a->q, a->both, rms ? OpCode::rms_norm : OpCode::layer_norm};
  }
  if (const auto* a = std::get_if<GatedActQuantizeAttrs>(&view.node.attrs))
    return {a->act, a->q, a->both, OpCode::gated_act};
  const auto& a = view.attrs<GeluQuantizeAttrs>();
  return {a.act, a.q, a.both, OpCode::gelu};
}

bool fused_applies(const NodeView& view) {
  const Layer layer = layer_of(view);
  std::vector<bool> seen(layer.n_operands(), false);
  for (const StoredPlace place : op_def(layer.op).stored) {
    if (layer.group() == 0) break;
    const auto codes = static_cast<size_t>(place.operand);
    if (!has_codec(view.in(codes).dtype)) return false;
    seen[codes] = true;
  }
  for (size_t i = 0; i < layer.n_operands(); ++i) {
    if (view.has(i) && !seen[i] && !is_wide(view.in(i).dtype)) return false;
  }
  for (size_t i = layer.n_operands(); i < layer.n_operands() + 4; ++i) {
    if (!view.in_is(i, {Dtype::f32})) return false;
  }
  return has_codec(view.out(0).dtype);
}

int64_t fused_bytes(const NodeView& view, int n_threads) {
  return float_bytes(quantize_scratch(rows_of(view.in(0)), layer_of(view).group(), n_threads));
}

// What all of them bind: operands, and the quantizer of the result.
class Fused {
 public:
  explicit Fused(const NodeView& view)
      : layer_(layer_of(view)),
        types_(view),
        codes_(view, layer_.q, layer_.both),
        given_(view.has(scale_at())),
        history_(view.has(scale_at() + 1) ? view.in(scale_at() + 1).n_elems() : 0),
        next_history_at_(view.node.results.size() - (layer_.both ? 2 : 1)) {}

  In plain(const LaunchArgs& args, size_t i) const { return types_.operand(args, i); }
  // The op's n-th stored operand.
  Stored stored(const LaunchArgs& args, size_t n) const {
    const StoredPlace place = op_def(layer_.op).stored[n];
    const In x = types_.operand(args, static_cast<size_t>(place.operand));
    if (layer_.group() == 0) return {x};
    return {x, types_.operand(args, static_cast<size_t>(place.scales)), layer_.group()};
  }
  // Result i, unless the scale is given.
  float* statistic(const LaunchArgs& args, size_t i) const {
    return given_ ? nullptr : data_out<float>(args, i);
  }
  // Statistic i of those that are given.
  const float* known(const LaunchArgs& args, size_t i) const {
    return data<float>(args, scale_at() + 2 + i);
  }
  OwnScale own(const LaunchArgs& args) const {
    if (given_) return {};
    OwnScale own{.target = static_cast<float>(layer_.q.target),
                 .scale = data_out<float>(args, 1),
                 .nonfinite = data_out<uint8_t>(args, 2)};
    if (history_ > 0)
      own.history = {data<float>(args, scale_at() + 1), data_out<float>(args, next_history_at_),
                     history_};
    return own;
  }
  TensorCodes codes(const LaunchArgs& args) const {
    return codes_.at(args, given_ ? *data<float>(args, scale_at()) : 1.0f);
  }
  const Layer& layer() const { return layer_; }

 private:
  size_t scale_at() const { return layer_.n_operands(); }

  Layer layer_;
  NodeTypes types_;
  CodesOf codes_;
  bool given_;
  int64_t history_;  // its length, 0 without one
  size_t next_history_at_;
};

LaunchFn prepare_rms_norm(const NodeView& view, Context& context) {
  const auto eps = static_cast<float>(view.attrs<NormQuantizeAttrs>().norm.eps);
  return [fused = Fused(view), eps, shape = rows_of(view.in(0)),
          &pool = context.pool](const LaunchArgs& args) {
    norm_quantize({.kind = NormKind::rms,
                   .x = fused.stored(args, 0),
                   .weight = fused.plain(args, 1),
                   .eps = eps,
                   .rstd = fused.statistic(args, 3),
                   .known_rstd = fused.known(args, 0),
                   .own = fused.own(args),
                   .out = fused.codes(args)},
                  shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_layer_norm(const NodeView& view, Context& context) {
  const auto eps = static_cast<float>(view.attrs<NormQuantizeAttrs>().norm.eps);
  return [fused = Fused(view), eps, shape = rows_of(view.in(0)),
          &pool = context.pool](const LaunchArgs& args) {
    norm_quantize({.kind = NormKind::layer,
                   .x = fused.stored(args, 0),
                   .weight = fused.plain(args, 1),
                   .bias = fused.plain(args, 2),
                   .eps = eps,
                   .mean = fused.statistic(args, 3),
                   .rstd = fused.statistic(args, 4),
                   .known_mean = fused.known(args, 0),
                   .known_rstd = fused.known(args, 1),
                   .own = fused.own(args),
                   .out = fused.codes(args)},
                  shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_gated_act(const NodeView& view, Context& context) {
  return [fused = Fused(view), shape = rows_of(view.in(0)),
          &pool = context.pool](const LaunchArgs& args) {
    gated_silu_quantize({.gate = fused.stored(args, 0),
                         .up = fused.stored(args, 1),
                         .own = fused.own(args),
                         .out = fused.codes(args)},
                        shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_gelu(const NodeView& view, Context& context) {
  const GeluKind kind = view.attrs<GeluQuantizeAttrs>().act.kind;
  const UnaryOp op = kind == GeluKind::erf ? UnaryOp::gelu_erf : UnaryOp::gelu_tanh;
  return [fused = Fused(view), op, shape = rows_of(view.in(0)),
          &pool = context.pool](const LaunchArgs& args) {
    unary_quantize(
        {.op = op, .x = fused.stored(args, 0), .own = fused.own(args), .out = fused.codes(args)},
        shape, scratch_of(args), pool);
  };
}

const Binding kBindings[] = {
    {OpCode::rms_norm_quantize, fused_applies, fused_bytes, prepare_rms_norm},
    {OpCode::layer_norm_quantize, fused_applies, fused_bytes, prepare_layer_norm},
    {OpCode::gated_act_quantize, fused_applies, fused_bytes, prepare_gated_act},
    {OpCode::gelu_quantize, fused_applies, fused_bytes, prepare_gelu},
};

}  // namespace

std::span<const Binding> quantize_layer_bindings() {
  return kBindings;
}

}  // namespace octet::cpu
