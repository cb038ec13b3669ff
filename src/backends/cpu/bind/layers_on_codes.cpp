#include <algorithm>

#include "backends/cpu/bind/codes.h"
#include "backends/cpu/quantize/quantize_layers.h"
#include "ir/op_def.h"

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
int64_t act_group(const NodeView& view) {
  return group_size(view, op_def(view.node.op).scales[0].operand);
}

int64_t span_bytes(const NodeView& view) {
  return float_bytes(
      quantize_scratch(rows_of(view.out(GatedAct::y)), act_group(view), view.target.n_threads));
}

LaunchFn prepare_gated_on_codes(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), group = act_group(view), shape = rows_of(view.out(GatedAct::y)),
          &pool = context.pool](const LaunchArgs& args) {
    gated_silu_on_codes(
        {{types.operand(args, GatedAct::gate), types.operand(args, GatedAct::gate_scale), group},
         {types.operand(args, GatedAct::up), types.operand(args, GatedAct::up_scale), group},
         types.result(args, GatedAct::y)},
        shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_gated_grad_on_codes(const NodeView& view, Context& context) {
  return with_amax_sink(view, [types = NodeTypes(view), group = act_group(view),
                               shape = rows_of(view.out(GatedActGrad::dgate)),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    gated_silu_backward_on_codes({{types.operand(args, GatedActGrad::gate),
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

LaunchFn prepare_gelu_on_codes(const NodeView& view, Context& context) {
  return [kind = view.attrs<GeluAttrs>().kind, types = NodeTypes(view), group = act_group(view),
          shape = rows_of(view.out(Gelu::y)), &pool = context.pool](const LaunchArgs& args) {
    gelu_on_codes({kind,
                   {types.operand(args, Gelu::x), types.operand(args, Gelu::x_scale), group},
                   {},
                   types.result(args, Gelu::y)},
                  shape, scratch_of(args), pool);
  };
}

LaunchFn prepare_gelu_grad_on_codes(const NodeView& view, Context& context) {
  return with_amax_sink(view, [kind = view.attrs<GeluAttrs>().kind, types = NodeTypes(view),
                               group = act_group(view), shape = rows_of(view.out(GeluGrad::dx)),
                               &pool = context.pool](const LaunchArgs& args, AmaxSink* amax) {
    gelu_on_codes(
        {kind,
         {types.operand(args, GeluGrad::x), types.operand(args, GeluGrad::x_scale), group},
         types.operand(args, GeluGrad::dy),
         types.result(args, GeluGrad::dx),
         amax},
        shape, scratch_of(args), pool);
  });
}

const Binding kLayersOnCodesBindings[] = {
    {{OpCode::gated_act, "codes", reads_codes, span_bytes}, prepare_gated_on_codes},
    {{OpCode::gated_act_grad, "codes", reads_codes, span_bytes}, prepare_gated_grad_on_codes},
    {{OpCode::gelu, "codes", reads_codes, span_bytes}, prepare_gelu_on_codes},
    {{OpCode::gelu_grad, "codes", reads_codes, span_bytes}, prepare_gelu_grad_on_codes},
};

}  // namespace

std::span<const Binding> layers_on_codes_bindings() {
  return kLayersOnCodesBindings;
}

}  // namespace octet::cpu
