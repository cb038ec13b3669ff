#include "backends/cpu/bind/codes.h"
#include "backends/cpu/quantize_layers.h"
#include "ir/op_def.h"

namespace octet::cpu {
namespace {

// Whether the op's stored operands are codes, and the rest f32 or bf16.
bool reads_codes(const NodeView& view) {
  if (stored_group(view.node.attrs) == 0) return false;
  std::vector<bool> codes(view.node.operands.size(), false);
  for (const StoredPlace place : op_def(view.node.op).stored) {
    if (!has_codec(view.in(place.operand).dtype) || !view.has(place.scale)) return false;
    codes[place.operand] = true;
  }
  for (size_t i = 0; i < codes.size(); ++i) {
    if (view.has(i) && !codes[i] && !is_wide(view.in(i).dtype)) return false;
  }
  for (size_t i = 0; i < own_results(view); ++i) {
    if (view.gives(i) && !is_wide(view.out(i).dtype)) return false;
  }
  return true;
}

int64_t norm_group(const NodeView& view) {
  return view.attrs<NormAttrs>().group;
}

// Scratch of a backward's sums, then of a decoded row for each thread.
int64_t sums_floats(const NodeView& view, SlotId weight) {
  const int n_sums = view.node.op == OpCode::layer_norm_grad ? 2 : 1;
  return view.has(weight)
             ? round_up(norm_backward_scratch(rows_of(view.in(RmsNormGrad::x)), n_sums), 16)
             : 0;
}

NormGroups groups_at(const NodeTypes& types, const LaunchArgs& args, SlotId scales, int64_t group,
                     int64_t rows_at) {
  return {types.operand(args, scales), group, scratch_of(args) + rows_at};
}

bool rms_norm_applies(const NodeView& view) {
  return reads_codes(view) && view.out(octet::RmsNorm::rstd).dtype == Dtype::f32;
}
int64_t forward_bytes(const NodeView& view, int n_threads) {
  return float_bytes(norm_groups_scratch(rows_of(view.in(octet::RmsNorm::x)), n_threads));
}

LaunchFn prepare_rms_norm(const NodeView& view, Context& context) {
  return
      [types = NodeTypes(view), a = view.attrs<NormAttrs>(),
       shape = rows_of(view.in(octet::RmsNorm::x)), &pool = context.pool](const LaunchArgs& args) {
        rms_norm({.x = types.operand(args, octet::RmsNorm::x),
                  .weight = types.operand(args, octet::RmsNorm::weight),
                  .y = types.result(args, octet::RmsNorm::y),
                  .rstd = data_out<float>(args, octet::RmsNorm::rstd),
                  .eps = static_cast<float>(a.eps),
                  .groups = groups_at(types, args, octet::RmsNorm::x_scale, a.group, 0)},
                 shape, pool);
      };
}

bool rms_grad_applies(const NodeView& view) {
  return reads_codes(view) && view.in(RmsNormGrad::rstd).dtype == Dtype::f32;
}
int64_t rms_grad_bytes(const NodeView& view, int n_threads) {
  return float_bytes(sums_floats(view, RmsNormGrad::weight) +
                     norm_groups_scratch(rows_of(view.in(RmsNormGrad::x)), n_threads));
}

LaunchFn prepare_rms_norm_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), group = norm_group(view),
                               shape = rows_of(view.in(RmsNormGrad::x)),
                               rows_at = sums_floats(view, RmsNormGrad::weight),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    rms_norm_backward({.x = types.operand(args, RmsNormGrad::x),
                       .weight = types.operand(args, RmsNormGrad::weight),
                       .dy = types.operand(args, RmsNormGrad::dy),
                       .residual = types.operand(args, RmsNormGrad::addend),
                       .rstd = data<float>(args, RmsNormGrad::rstd),
                       .dx = types.result(args, RmsNormGrad::dx),
                       .dw = types.result(args, RmsNormGrad::dweight),
                       .scratch = scratch_of(args),
                       .groups = groups_at(types, args, RmsNormGrad::x_scale, group, rows_at),
                       .amax = amax},
                      shape, pool);
  });
}

bool layer_norm_applies(const NodeView& view) {
  return reads_codes(view) && view.out(octet::LayerNorm::mean).dtype == Dtype::f32 &&
         view.out(octet::LayerNorm::rstd).dtype == Dtype::f32;
}

LaunchFn prepare_layer_norm(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), a = view.attrs<NormAttrs>(),
          shape = rows_of(view.in(octet::LayerNorm::x)),
          &pool = context.pool](const LaunchArgs& args) {
    layer_norm({.x = types.operand(args, octet::LayerNorm::x),
                .weight = types.operand(args, octet::LayerNorm::weight),
                .bias = types.operand(args, octet::LayerNorm::bias),
                .y = types.result(args, octet::LayerNorm::y),
                .mean = data_out<float>(args, octet::LayerNorm::mean),
                .rstd = data_out<float>(args, octet::LayerNorm::rstd),
                .eps = static_cast<float>(a.eps),
                .groups = groups_at(types, args, octet::LayerNorm::x_scale, a.group, 0)},
               shape, pool);
  };
}

bool layer_grad_applies(const NodeView& view) {
  return reads_codes(view) && view.in(LayerNormGrad::mean).dtype == Dtype::f32 &&
         view.in(LayerNormGrad::rstd).dtype == Dtype::f32;
}
int64_t layer_grad_bytes(const NodeView& view, int n_threads) {
  return float_bytes(sums_floats(view, LayerNormGrad::weight) +
                     norm_groups_scratch(rows_of(view.in(LayerNormGrad::x)), n_threads));
}

LaunchFn prepare_layer_norm_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), group = norm_group(view),
                               shape = rows_of(view.in(LayerNormGrad::x)),
                               rows_at = sums_floats(view, LayerNormGrad::weight),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    layer_norm_backward({.x = types.operand(args, LayerNormGrad::x),
                         .weight = types.operand(args, LayerNormGrad::weight),
                         .dy = types.operand(args, LayerNormGrad::dy),
                         .residual = types.operand(args, LayerNormGrad::addend),
                         .mean = data<float>(args, LayerNormGrad::mean),
                         .rstd = data<float>(args, LayerNormGrad::rstd),
                         .dx = types.result(args, LayerNormGrad::dx),
                         .dw = types.result(args, LayerNormGrad::dweight),
                         .db = types.result(args, LayerNormGrad::dbias),
                         .scratch = scratch_of(args),
                         .groups = groups_at(types, args, LayerNormGrad::x_scale, group, rows_at),
                         .amax = amax},
                        shape, pool);
  });
}

// Activations: span scratch, the rows being everything but the last axis.
int64_t act_group(const NodeView& view) {
  return view.attrs<GatedActAttrs>().group;
}
int64_t gelu_group(const NodeView& view) {
  return view.attrs<GeluAttrs>().group;
}

template <int64_t (*kGroup)(const NodeView&)>
int64_t span_bytes(const NodeView& view, int n_threads) {
  return float_bytes(quantize_scratch(rows_of(view.out(GatedAct::y)), kGroup(view), n_threads));
}

LaunchFn prepare_gated(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), group = act_group(view), shape = rows_of(view.out(GatedAct::y)),
          &pool = context.pool](const LaunchArgs& args) {
    gated_silu_stored(
        {{types.operand(args, GatedAct::gate), types.operand(args, GatedAct::gate_scale), group},
         {types.operand(args, GatedAct::up), types.operand(args, GatedAct::up_scale), group},
         types.result(args, GatedAct::y)},
        shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_gated_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), group = act_group(view),
                               shape = rows_of(view.out(GatedActGrad::dgate)),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    gated_silu_backward_stored({{types.operand(args, GatedActGrad::gate),
                                 types.operand(args, GatedActGrad::gate_scale), group},
                                {types.operand(args, GatedActGrad::up),
                                 types.operand(args, GatedActGrad::up_scale), group},
                                types.operand(args, GatedActGrad::dy),
                                types.result(args, GatedActGrad::dgate),
                                types.result(args, GatedActGrad::dup),
                                amax},
                               shape, scratch_of(args), pool);
  });
}

UnaryOp gelu_op(const NodeView& view) {
  return view.attrs<GeluAttrs>().kind == GeluKind::erf ? UnaryOp::gelu_erf : UnaryOp::gelu_tanh;
}

LaunchFn prepare_gelu(const NodeView& view, Context& context) {
  return [op = gelu_op(view), types = NodeTypes(view), group = gelu_group(view),
          shape = rows_of(view.out(Gelu::y)), &pool = context.pool](const LaunchArgs& args) {
    unary_stored({op,
                  {types.operand(args, Gelu::x), types.operand(args, Gelu::x_scale), group},
                  {},
                  types.result(args, Gelu::y)},
                 shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_gelu_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [op = gelu_op(view), types = NodeTypes(view),
                               group = gelu_group(view), shape = rows_of(view.out(GeluGrad::dx)),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    unary_stored({op,
                  {types.operand(args, GeluGrad::x), types.operand(args, GeluGrad::x_scale), group},
                  types.operand(args, GeluGrad::dy),
                  types.result(args, GeluGrad::dx),
                  amax},
                 shape, scratch_of(args), pool);
  });
}

const Binding kBindings[] = {
    {OpCode::rms_norm, rms_norm_applies, forward_bytes, prepare_rms_norm},
    {OpCode::rms_norm_grad, rms_grad_applies, rms_grad_bytes, prepare_rms_norm_grad},
    {OpCode::layer_norm, layer_norm_applies, forward_bytes, prepare_layer_norm},
    {OpCode::layer_norm_grad, layer_grad_applies, layer_grad_bytes, prepare_layer_norm_grad},
    {OpCode::gated_act, reads_codes, span_bytes<act_group>, prepare_gated},
    {OpCode::gated_act_grad, reads_codes, span_bytes<act_group>, prepare_gated_grad},
    {OpCode::gelu, reads_codes, span_bytes<gelu_group>, prepare_gelu},
    {OpCode::gelu_grad, reads_codes, span_bytes<gelu_group>, prepare_gelu_grad},
};

}  // namespace

std::span<const Binding> stored_bindings() {
  return kBindings;
}

}  // namespace octet::cpu
