#include "backends/cpu/bind/launch.h"
#include "backends/cpu/quantize_layers.h"

namespace octet::cpu {
namespace {

RowShape rows_of(const TensorType& x) {
  const int64_t cols = x.shape.empty() ? 1 : x.shape.back();
  return {.rows = cols == 0 ? 0 : x.n_elems() / cols, .cols = cols};
}

int64_t float_bytes(int64_t n) {
  return n * static_cast<int64_t>(sizeof(float));
}
float* scratch_of(const LaunchArgs& args) {
  return reinterpret_cast<float*>(args.scratch);
}

// (operand of codes, its scales): ir/ops/{norm,activation}.cpp.
using Places = std::initializer_list<std::pair<size_t, size_t>>;

bool reads_codes(const NodeView& view, int64_t group, Places places) {
  if (group == 0) return false;
  std::vector<bool> codes(view.node.operands.size(), false);
  for (const auto& [operand, scales] : places) {
    const Dtype dtype = view.in(operand).dtype;
    if (!is_quantized(dtype) || dtype == Dtype::e8m0 || !view.has(scales)) return false;
    codes[operand] = true;
  }
  for (size_t i = 0; i < codes.size(); ++i) {
    if (view.has(i) && !codes[i] && !is_wide(view.in(i).dtype)) return false;
  }
  for (size_t i = 0; i < view.node.results.size(); ++i) {
    if (!is_wide(view.out(i).dtype)) return false;
  }
  return true;
}

int64_t norm_group(const NodeView& view) {
  return view.attrs<NormAttrs>().group;
}

// Scratch of a backward's sums, then of a decoded row for each thread.
int64_t sums_floats(const NodeView& view, size_t weight) {
  const int n_sums = static_cast<int>(view.node.results.size()) - 1;
  return view.has(weight) ? round_up(norm_backward_scratch(rows_of(view.in(1)), n_sums), 16) : 0;
}

NormGroups groups_at(const NodeTypes& types, const LaunchArgs& args, size_t scales, int64_t group,
                     int64_t rows_at) {
  return {types.operand(args, scales), group, scratch_of(args) + rows_at};
}

bool rms_norm_applies(const NodeView& view) {
  return reads_codes(view, norm_group(view), {{0, 2}}) && view.out(1).dtype == Dtype::f32;
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
  return reads_codes(view, norm_group(view), {{1, 4}}) && view.in(2).dtype == Dtype::f32;
}
int64_t rms_grad_bytes(const NodeView& view, int n_threads) {
  return float_bytes(sums_floats(view, 3) + norm_groups_scratch(rows_of(view.in(1)), n_threads));
}

LaunchFn prepare_rms_norm_grad(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), group = norm_group(view), shape = rows_of(view.in(1)),
          rows_at = sums_floats(view, 3), &pool = context.pool](const LaunchArgs& args) {
    rms_norm_backward({.x = types.operand(args, 1),
                       .weight = types.operand(args, 3),
                       .dy = types.operand(args, 0),
                       .residual = {},
                       .rstd = data<float>(args, 2),
                       .dx = types.result(args, 0),
                       .dw = types.result(args, 1),
                       .scratch = scratch_of(args),
                       .groups = groups_at(types, args, 4, group, rows_at)},
                      shape, pool);
  };
}

bool layer_norm_applies(const NodeView& view) {
  return reads_codes(view, norm_group(view), {{0, 3}}) && view.out(1).dtype == Dtype::f32 &&
         view.out(2).dtype == Dtype::f32;
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
  return reads_codes(view, norm_group(view), {{1, 5}}) && view.in(2).dtype == Dtype::f32 &&
         view.in(3).dtype == Dtype::f32;
}
int64_t layer_grad_bytes(const NodeView& view, int n_threads) {
  return float_bytes(sums_floats(view, 4) + norm_groups_scratch(rows_of(view.in(1)), n_threads));
}

LaunchFn prepare_layer_norm_grad(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), group = norm_group(view), shape = rows_of(view.in(1)),
          rows_at = sums_floats(view, 4), &pool = context.pool](const LaunchArgs& args) {
    layer_norm_backward({.x = types.operand(args, 1),
                         .weight = types.operand(args, 4),
                         .dy = types.operand(args, 0),
                         .residual = {},
                         .mean = data<float>(args, 2),
                         .rstd = data<float>(args, 3),
                         .dx = types.result(args, 0),
                         .dw = types.result(args, 1),
                         .db = types.result(args, 2),
                         .scratch = scratch_of(args),
                         .groups = groups_at(types, args, 5, group, rows_at)},
                        shape, pool);
  };
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
  return [types = NodeTypes(view), group = act_group(view), shape = rows_of(view.out(0)),
          &pool = context.pool](const LaunchArgs& args) {
    gated_silu_backward_stored({{types.operand(args, 1), types.operand(args, 3), group},
                                {types.operand(args, 2), types.operand(args, 4), group},
                                types.operand(args, 0),
                                types.result(args, 0),
                                types.result(args, 1)},
                               shape, scratch_of(args), pool);
  };
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
  return [op = gelu_op(view), types = NodeTypes(view), group = gelu_group(view),
          shape = rows_of(view.out(0)), &pool = context.pool](const LaunchArgs& args) {
    unary_stored({op,
                  {types.operand(args, 1), types.operand(args, 2), group},
                  types.operand(args, 0),
                  types.result(args, 0)},
                 shape, scratch_of(args), pool);
  };
}

bool gated_applies(const NodeView& view) {
  return reads_codes(view, act_group(view), {{0, 2}, {1, 3}});
}
bool gated_grad_applies(const NodeView& view) {
  return reads_codes(view, act_group(view), {{1, 3}, {2, 4}});
}
bool gelu_applies(const NodeView& view) {
  return reads_codes(view, gelu_group(view), {{0, 1}});
}
bool gelu_grad_applies(const NodeView& view) {
  return reads_codes(view, gelu_group(view), {{1, 2}});
}

const Binding kBindings[] = {
    {OpCode::rms_norm, rms_norm_applies, forward_bytes, prepare_rms_norm},
    {OpCode::rms_norm_grad, rms_grad_applies, rms_grad_bytes, prepare_rms_norm_grad},
    {OpCode::layer_norm, layer_norm_applies, forward_bytes, prepare_layer_norm},
    {OpCode::layer_norm_grad, layer_grad_applies, layer_grad_bytes, prepare_layer_norm_grad},
    {OpCode::gated_act, gated_applies, span_bytes<act_group>, prepare_gated},
    {OpCode::gated_act_grad, gated_grad_applies, span_bytes<act_group>, prepare_gated_grad},
    {OpCode::gelu, gelu_applies, span_bytes<gelu_group>, prepare_gelu},
    {OpCode::gelu_grad, gelu_grad_applies, span_bytes<gelu_group>, prepare_gelu_grad},
};

}  // namespace

std::span<const Binding> stored_bindings() {
  return kBindings;
}

}  // namespace octet::cpu
