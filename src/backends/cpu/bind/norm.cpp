// RMSNorm, LayerNorm and their gradients, of an x that is plain or stored in groups.
#include "backends/cpu/norm/norm.h"

#include <vector>

#include "backends/cpu/bind/codes.h"
#include "ir/op_def.h"

namespace octet::cpu {
namespace {

// A statistic that is known is no result.
bool gives_f32(const NodeView& view, SlotId result) {
  return !view.gives(result) || view.out_is(result, {Dtype::f32});
}

bool forward_applies(const NodeView& view) {
  const NormSlots& at = op_def(view.node.op).norm;
  return reads_codes(view) && gives_f32(view, at.mean) && gives_f32(view, at.rstd) &&
         view.in_is(at.known_mean, {Dtype::f32}) && view.in_is(at.known_rstd, {Dtype::f32});
}
int64_t forward_scratch(const NodeView& view) {
  return float_bytes(norm_groups_scratch(rows_of(view.in(RmsNorm::x)), view.target.n_threads));
}
// An absent scale and a group of 0 where x is plain.
LaunchFn prepare_forward(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [kind = norm_kind(view), &op = op_def(view.node.op), group = group_size(view),
                   shape = rows_of(view.in(RmsNorm::x))](const Call& call) {
                    const NormSlots& at = op.norm;
                    norm({.kind = kind,
                          .x = call.in(RmsNorm::x),
                          .weight = call.in(at.weight),
                          .bias = call.in(at.bias),
                          .y = call.out(RmsNorm::y),
                          .mean = call.result<float>(at.mean),
                          .rstd = call.result<float>(at.rstd),
                          .eps = static_cast<float>(call.attrs<NormAttrs>().eps),
                          .groups = {call.in(op.scales[0].scale), group, call.scratch<float>()},
                          .known_mean = call.data<float>(at.known_mean),
                          .known_rstd = call.data<float>(at.known_rstd)},
                         shape, call.pool);
                  });
}

bool gradient_applies(const NodeView& view) {
  const NormSlots& at = op_def(view.node.op).norm;
  return reads_codes(view) && view.in_is(at.mean, {Dtype::f32}) &&
         view.in(at.rstd).dtype == Dtype::f32;
}
int64_t sums_floats(const NodeView& view) {
  const OpDef& op = op_def(view.node.op);
  const int n_sums = op.is_centred() ? 2 : 1;
  return view.has(op.norm.weight) ? norm_backward_scratch(rows_of(view.in(RmsNormGrad::x)), n_sums)
                                  : 0;
}
int64_t sums_bytes(const NodeView& view) {
  return float_bytes(sums_floats(view));
}
// Behind the sums: a decoded row for each thread.
int64_t rows_begin(const NodeView& view) {
  return round_up(sums_floats(view), 16);
}
int64_t gradient_scratch(const NodeView& view) {
  return float_bytes(rows_begin(view) +
                     norm_groups_scratch(rows_of(view.in(RmsNormGrad::x)), view.target.n_threads));
}
LaunchFn prepare_gradient(const NodeView& view, Context& context) {
  return launcher(
      view, context,
      [kind = norm_kind(view), &op = op_def(view.node.op), group = group_size(view),
       shape = rows_of(view.in(RmsNormGrad::x)), rows_at = rows_begin(view)](const Call& call) {
        const NormSlots& at = op.norm;
        auto* const scratch = call.scratch<float>();
        norm_backward({.kind = kind,
                       .x = call.in(RmsNormGrad::x),
                       .weight = call.in(at.weight),
                       .dy = call.in(RmsNormGrad::dy),
                       .residual = call.in(op.addend),
                       .mean = call.data<float>(at.mean),
                       .rstd = call.data<float>(at.rstd),
                       .dx = call.out(RmsNormGrad::dx),
                       .dw = call.out(RmsNormGrad::dweight),
                       .db = call.out(at.dbias),
                       .scratch = scratch,
                       .groups = {call.in(op.scales[0].scale), group, scratch + rows_at},
                       .amax = call.amax},
                      shape, call.pool);
      });
}

}  // namespace

std::span<const Binding> norm_bindings() {
  static const std::vector<Binding> all = [] {
    std::vector<Binding> rows;
    for (int i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<OpCode>(i);
      if (is_norm(op)) {
        rows.push_back({{op, "simd", all_f32_or_bf16}, prepare_forward});
        rows.push_back({{op, "codes", forward_applies, forward_scratch}, prepare_forward});
      } else if (is_norm_gradient(op)) {
        rows.push_back({{op, "simd", all_f32_or_bf16, sums_bytes}, prepare_gradient});
        rows.push_back({{op, "codes", gradient_applies, gradient_scratch}, prepare_gradient});
      }
    }
    return rows;
  }();
  return all;
}

}  // namespace octet::cpu
