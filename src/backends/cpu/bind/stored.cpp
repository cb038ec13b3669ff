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
    const auto operand = static_cast<size_t>(place.operand);
    if (!has_codec(view.in(operand).dtype) || !view.has(static_cast<size_t>(place.scales)))
      return false;
    codes[operand] = true;
  }
  for (size_t i = 0; i < codes.size(); ++i) {
    if (view.has(i) && !codes[i] && !is_wide(view.in(i).dtype)) return false;
  }
  for (size_t i = 0; i < own_results(view); ++i) {
    if (!is_wide(view.out(i).dtype)) return false;
  }
  return true;
}

int64_t norm_group(const NodeView& view) {
  return view.attrs<NormAttrs>().group;
}

// Scratch of a backward's sums, then of a decoded row for each thread.
int64_t sums_floats(const NodeView& view, size_t weight) {
  const int n_sums = static_cast<int>(own_results(view)) - 1;
  return view.has(weight) ? round_up(norm_backward_scratch(rows_of(view.in(1)), n_sums), 16) : 0;
}

NormGroups groups_at(const NodeTypes& types, const LaunchArgs& args, size_t scales, int64_t group,
                     int64_t rows_at) {
  return {types.operand(args, scales), group, scratch_of(args) + rows_at};
}

bool rms_norm_applies(const NodeView& view) {
  return reads_codes(view) && view.out(1).dtype == Dtype::f32;
}
int64_t forward_bytes(const NodeView& view, int n_threads) {
  return float_bytes(norm_groups_scratch(rows_of(view.in(0)), n_threads));
}

LaunchFn prepare_rms_norm(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), a = view.attrs<NormAttrs>(), shape = rows_of(view.in(0)),
          &pool = context.pool](const LaunchArgs& args) {
    rms_norm({.x = types.operand(args, 0),
              .weight = types.operand(args, 1),
              .y = types.result(args, 0),
              .rstd = data_out<float>(args, 1),
              .eps = static_cast<float>(a.eps),
              .groups = groups_at(types, args, 2, a.group, 0)},
             shape, pool);
  };
}

bool rms_grad_applies(const NodeView& view) {
  return reads_codes(view) && view.in(2).dtype == Dtype::f32;
}
int64_t rms_grad_bytes(const NodeView& view, int n_threads) {
  return float_bytes(sums_floats(view, 3) + norm_groups_scratch(rows_of(view.in(1)), n_threads));
}

LaunchFn prepare_rms_norm_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), group = norm_group(view),
                               shape = rows_of(view.in(1)), rows_at = sums_floats(view, 3),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    rms_norm_backward({.x = types.operand(args, 1),
                       .weight = types.operand(args, 3),
                       .dy = types.operand(args, 0),
                       .residual = types.operand(args, 5),
                       .rstd = data<float>(args, 2),
                       .dx = types.result(args, 0),
                       .dw = types.result(args, 1),
                       .scratch = scratch_of(args),
                       .groups = groups_at(types, args, 4, group, rows_at),
                       .amax = amax},
                      shape, pool);
  });
}

bool layer_norm_applies(const NodeView& view) {
  return reads_codes(view) && view.out(1).dtype == Dtype::f32 && view.out(2).dtype == Dtype::f32;
}

LaunchFn prepare_layer_norm(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), a = view.attrs<NormAttrs>(), shape = rows_of(view.in(0)),
          &pool = context.pool](const LaunchArgs& args) {
    layer_norm({.x = types.operand(args, 0),
                .weight = types.operand(args, 1),
                .bias = types.operand(args, 2),
                .y = types.result(args, 0),
                .mean = data_out<float>(args, 1),
                .rstd = data_out<float>(args, 2),
                .eps = static_cast<float>(a.eps),
                .groups = groups_at(types, args, 3, a.group, 0)},
               shape, pool);
  };
}

bool layer_grad_applies(const NodeView& view) {
  return reads_codes(view) && view.in(2).dtype == Dtype::f32 && view.in(3).dtype == Dtype::f32;
}
int64_t layer_grad_bytes(const NodeView& view, int n_threads) {
  return float_bytes(sums_floats(view, 4) + norm_groups_scratch(rows_of(view.in(1)), n_threads));
}

LaunchFn prepare_layer_norm_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), group = norm_group(view),
                               shape = rows_of(view.in(1)), rows_at = sums_floats(view, 4),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    layer_norm_backward({.x = types.operand(args, 1),
                         .weight = types.operand(args, 4),
                         .dy = types.operand(args, 0),
                         .residual = types.operand(args, 6),
                         .mean = data<float>(args, 2),
                         .rstd = data<float>(args, 3),
                         .dx = types.result(args, 0),
                         .dw = types.result(args, 1),
                         .db = types.result(args, 2),
                         .scratch = scratch_of(args),
                         .groups = groups_at(types, args, 5, group, rows_at),
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
  return float_bytes(quantize_scratch(rows_of(view.out(0)), kGroup(view), n_threads));
}

LaunchFn prepare_gated(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), group = act_group(view), shape = rows_of(view.out(0)),
          &pool = context.pool](const LaunchArgs& args) {
    gated_silu_stored({{types.operand(args, 0), types.operand(args, 2), group},
                       {types.operand(args, 1), types.operand(args, 3), group},
                       types.result(args, 0)},
                      shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_gated_grad(const NodeView& view, Context& context) {
  return with_amax_sink(
      view, [types = NodeTypes(view), group = act_group(view), shape = rows_of(view.out(0)),
             &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
        gated_silu_backward_stored({{types.operand(args, 1), types.operand(args, 3), group},
                                    {types.operand(args, 2), types.operand(args, 4), group},
                                    types.operand(args, 0),
                                    types.result(args, 0),
                                    types.result(args, 1),
                                    amax},
                                   shape, scratch_of(args), pool);
      });
}

UnaryOp gelu_op(const NodeView& view) {
  return view.attrs<GeluAttrs>().kind == GeluKind::erf ? UnaryOp::gelu_erf : UnaryOp::gelu_tanh;
}

LaunchFn prepare_gelu(const NodeView& view, Context& context) {
  return [op = gelu_op(view), types = NodeTypes(view), group = gelu_group(view),
          shape = rows_of(view.out(0)), &pool = context.pool](const LaunchArgs& args) {
    unary_stored(
        {op, {types.operand(args, 0), types.operand(args, 1), group}, {}, types.result(args, 0)},
        shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_gelu_grad(const NodeView& view, Context& context) {
  return with_amax_sink(view, [op = gelu_op(view), types = NodeTypes(view),
                               group = gelu_group(view), shape = rows_of(view.out(0)),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    unary_stored({op,
                  {types.operand(args, 1), types.operand(args, 2), group},
                  types.operand(args, 0),
                  types.result(args, 0),
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
