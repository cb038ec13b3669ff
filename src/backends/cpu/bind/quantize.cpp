#include "backends/cpu/quantize/quantize.h"

#include "backends/cpu/bind/codes.h"
#include "backends/cpu/elementwise/reduce.h"
#include "backends/cpu/quantize/quantize_blocks.h"
#include "formats/periodic_scale.h"

namespace octet::cpu {
namespace {

// Per tensor: formats/quantize.h's rules.
float scale_of(const AmaxScaleAttrs& q, float amax) {
  return scale_from_amax({.rule = q.rule, .amax_target = static_cast<float>(q.target)}, amax);
}

bool amax_applies(const NodeView& view) {
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    if (!is_f32_or_bf16(view.in(i).dtype) && view.in(i).dtype != Dtype::boolean) return false;
  }
  return view.out(AmaxOp::amax).dtype == Dtype::f32;
}

// An operand whose maximum is taken, or a flag.
struct Measured {
  size_t operand;
  int64_t n_elems;
};
std::vector<Measured> measured_from(const NodeView& view, size_t first) {
  std::vector<Measured> all;
  for (size_t i = first; i < view.node.operands.size(); ++i)
    all.push_back({i, view.in(i).n_elems()});
  return all;
}

Amax amax_of(const Call& call, const std::vector<Measured>& operands) {
  Amax all;
  for (const auto& [i, n] : operands) {
    const In x = call.in(i);
    const Amax part = x.dtype == Dtype::boolean ? Amax{0, *call.data<uint8_t>(i) == 0}
                                                : amax(x, n, call.scratch<double>(), call.pool);
    all = {std::max(all.value, part.value), all.finite && part.finite};
  }
  return all;
}

LaunchFn prepare_amax(const NodeView& view, Context& context) {
  return launcher(view, context, [operands = measured_from(view, 0)](const Call& call) {
    const Amax all = amax_of(call, operands);
    *call.result<float>(AmaxOp::amax) = all.value;
    *call.result<uint8_t>(AmaxOp::nonfinite) = all.finite ? 0 : 1;
  });
}

// Scalars in f32.
bool scale_applies(const NodeView& view) {
  return view.in(QuantScale::amax).dtype == Dtype::f32 &&
         view.out(QuantScale::scale).dtype == Dtype::f32 &&
         view.attrs<AmaxScaleAttrs>().rule != ScaleRule::mx_floor;
}
bool periodic_applies(const NodeView& view) {
  return view.in(PeriodicScale::amax).dtype == Dtype::f32 &&
         view.in(PeriodicScale::before).dtype == Dtype::f32 &&
         view.out(PeriodicScale::scale).dtype == Dtype::f32;
}
bool delayed_applies(const NodeView& view) {
  return scale_applies(view) && view.in(DelayedScale::history).dtype == Dtype::f32 &&
         view.out(DelayedScale::next_history).dtype == Dtype::f32;
}

LaunchFn prepare_quant_scale(const NodeView& view, Context& context) {
  return launcher(view, context, [](const Call& call) {
    *call.result<float>(QuantScale::scale) =
        scale_of(call.attrs<AmaxScaleAttrs>(), *call.data<float>(QuantScale::amax));
  });
}

LaunchFn prepare_delayed_scale(const NodeView& view, Context& context) {
  return launcher(view, context, [n = view.in(DelayedScale::history).n_elems()](const Call& call) {
    const AmaxHistory history{call.data<float>(DelayedScale::history),
                              call.result<float>(DelayedScale::next_history), n};
    *call.result<float>(DelayedScale::scale) = scale_of(
        call.attrs<AmaxScaleAttrs>(), delayed_amax(history, *call.data<float>(DelayedScale::amax)));
  });
}

LaunchFn prepare_periodic_scale(const NodeView& view, Context& context) {
  return launcher(view, context, [](const Call& call) {
    *call.result<float>(PeriodicScale::scale) = periodic_scale(
        *call.data<float>(PeriodicScale::before), *call.data<float>(PeriodicScale::amax),
        static_cast<float>(call.attrs<AmaxScaleAttrs>().target));
  });
}

bool quantize_applies(const NodeView& view) {
  return is_f32_or_bf16(view.in(Quantize::x).dtype) &&
         view.in(Quantize::scale).dtype == Dtype::f32 && has_codec(view.out(Quantize::q).dtype);
}

std::optional<SlotId> transposed_slot(const NodeView& view) {
  if (!view.gives(QuantizeBoth::q_transposed)) return std::nullopt;
  return QuantizeBoth::q_transposed;
}

int64_t quantize_bytes(const NodeView& view) {
  const bool is_by_row = !view.out(Quantize::q).layout.transposed;
  if (is_by_row && !transposed_slot(view)) return 0;
  return float_bytes(quantize_scratch(rows_of(view.in(Quantize::x)), 0, view.target.n_threads));
}

LaunchFn prepare_quantize(const NodeView& view, Context& context) {
  return launcher(view, context,
                  [codes = CodesOf(view, view.attrs<QuantizeAttrs>(), transposed_slot(view)),
                   shape = rows_of(view.in(Quantize::x))](const Call& call) {
                    const auto& q = call.attrs<QuantizeAttrs>();
                    const In x = call.in(Quantize::x);
                    const TensorCodes out = codes.at(call, *call.data<float>(Quantize::scale));
                    if (q.rounding != Rounding::near)
                      return quantize_rounded(x, {q, call.data<uint32_t>(Quantize::draw)}, out,
                                              shape, call.pool);
                    quantize(x, out, shape, call.scratch<float>(), call.pool);
                  });
}

bool amax_quantize_applies(const NodeView& view) {
  if (!view.attrs<AmaxQuantizeAttrs>().q.has_default_scaling()) return false;
  for (size_t i = AmaxQuantize::maximum; i < view.node.operands.size(); ++i) {
    if (!is_f32_or_bf16(view.in(i).dtype) && view.in(i).dtype != Dtype::boolean) return false;
  }
  return is_f32_or_bf16(view.in(AmaxQuantize::x).dtype) &&
         view.in_is(AmaxQuantize::history, {Dtype::f32}) &&
         has_codec(view.out(AmaxQuantize::q).dtype);
}

int64_t amax_quantize_bytes(const NodeView& view) {
  const int64_t quantize =
      float_bytes(quantize_scratch(rows_of(view.in(AmaxQuantize::x)), 0, view.target.n_threads));
  return std::max(quantize, reduce_bytes(view));
}

LaunchFn prepare_amax_quantize(const NodeView& view, Context& context) {
  using S = AmaxQuantize;
  const auto& a = view.attrs<AmaxQuantizeAttrs>();
  std::vector<Measured> measured = measured_from(view, S::maximum);
  if (a.measures) measured.push_back({S::x, view.in(S::x).n_elems()});
  const auto both = a.both ? std::optional<SlotId>(S::q_transposed) : std::nullopt;
  const int64_t n_history = view.has(S::history) ? view.in(S::history).n_elems() : 0;
  return launcher(view, context,
                  [measured, codes = CodesOf(view, a.q, both), q = scale_attrs(a.q), n_history,
                   shape = rows_of(view.in(S::x))](const Call& call) {
                    const Amax all = amax_of(call, measured);
                    const AmaxHistory history{call.data<float>(S::history),
                                              call.result<float>(S::next_history), n_history};
                    const float scale = scale_of(q, delayed_amax(history, all.value));
                    *call.result<float>(S::scale) = scale;
                    *call.result<uint8_t>(S::nonfinite) = all.finite ? 0 : 1;
                    quantize(call.in(S::x), codes.at(call, scale), shape, call.scratch<float>(),
                             call.pool);
                  });
}

int64_t group_bytes(const NodeView& view) {
  return float_bytes(quantize_scratch(rows_of(view.in(QuantizeGroups::x)),
                                      scale_tile(made_groups(view)).cols, view.target.n_threads));
}
int64_t dequantize_bytes(const NodeView& view) {
  const int64_t group = scale_tile(view.in(Dequantize::q)).cols;
  return float_bytes(
      quantize_scratch(rows_of(view.in(Dequantize::q)), group, view.target.n_threads));
}

GroupCodes groups_of(const NodeView& view) {
  const TensorType& q = made_groups(view);
  return {.format = q.dtype,
          .target = static_cast<float>(view.attrs<QuantizeAttrs>().target),
          .group = q.granularity.size};
}
// In groups along the rows as the fused kernels make them.
bool in_default_groups(const NodeView& view) {
  return view.attrs<QuantizeAttrs>().has_default_scaling() && made_groups(view).in_row_groups();
}

bool groups_apply(const NodeView& view) {
  return is_f32_or_bf16(view.in(QuantizeGroups::x).dtype) &&
         has_codec(view.out(QuantizeGroups::q).dtype);
}

LaunchFn prepare_quantize_groups(const NodeView& view, Context& context) {
  if (!in_default_groups(view)) {
    return launcher(view, context,
                    [tile = scale_tile(made_groups(view)),
                     shape = rows_of(view.in(QuantizeGroups::x))](const Call& call) {
                      quantize_blocks(
                          call.in(QuantizeGroups::x), call.attrs<QuantizeAttrs>(), shape,
                          {call.out(QuantizeGroups::q), call.out(QuantizeGroups::scale), tile},
                          call.pool);
                    });
  }
  return launcher(
      view, context,
      [out = groups_of(view), shape = rows_of(view.in(QuantizeGroups::x))](const Call& call) {
        GroupCodes codes = out;
        codes.codes = call.result<uint8_t>(QuantizeGroups::q);
        codes.scales = call.result<uint16_t>(QuantizeGroups::scale);
        quantize_groups(call.in(QuantizeGroups::x), codes, shape, call.scratch<float>(), call.pool);
      });
}

// Others are the reference kernel's.
bool fake_applies(const NodeView& view) {
  return view.in(Unary::x).dtype == Dtype::f32 && view.out(Unary::y).dtype == Dtype::f32;
}

LaunchFn prepare_fake_quantize(const NodeView& view, Context& context) {
  const RowShape shape = rows_of(view.in(Unary::x));
  return launcher(view, context,
                  [quantizer = fake_quantizer(view.attrs<FakeQuantizeAttrs>(), shape.cols),
                   shape](const Call& call) {
                    fake_quantize(quantizer, shape, call.data<float>(Unary::x),
                                  call.result<float>(Unary::y), call.pool);
                  });
}

bool add_applies(const NodeView& view) {
  return in_default_groups(view) && is_f32_or_bf16(view.in(octet::AddQuantize::a).dtype) &&
         is_f32_or_bf16(view.in(octet::AddQuantize::b).dtype) &&
         is_f32_or_bf16(view.out(octet::AddQuantize::sum).dtype) &&
         has_codec(view.out(octet::AddQuantize::q).dtype);
}

LaunchFn prepare_add_quantize(const NodeView& view, Context& context) {
  return launcher(
      view, context,
      [out = groups_of(view), shape = rows_of(view.in(octet::AddQuantize::a))](const Call& call) {
        GroupCodes codes = out;
        codes.codes = call.result<uint8_t>(octet::AddQuantize::q);
        codes.scales = call.result<uint16_t>(octet::AddQuantize::scale);
        add_quantize({call.in(octet::AddQuantize::a), call.in(octet::AddQuantize::b),
                      call.out(octet::AddQuantize::sum), codes},
                     shape, call.scratch<float>(), call.pool);
      });
}

// In a way that only dequantize_blocks knows.
bool reads_blocks(const NodeView& view) {
  const TensorType& q = view.in(Dequantize::q);
  return scale_tile(q).rows > 1 || q.has(Granularity::Kind::row) ||
         q.granularity.scale == Dtype::e8m0;
}

bool dequantize_applies(const NodeView& view) {
  const Dtype scale = view.in(Dequantize::scale).dtype;
  const bool has_scale = is_f32_or_bf16(scale) || (scale == Dtype::e8m0 && reads_blocks(view));
  return has_codec(view.in(Dequantize::q).dtype) &&
         !view.in(Dequantize::q).has(Granularity::Kind::run) && has_scale &&
         is_f32_or_bf16(view.out(Dequantize::x).dtype);
}

LaunchFn prepare_dequantize(const NodeView& view, Context& context) {
  if (reads_blocks(view)) {
    return launcher(view, context,
                    [tile = scale_tile(view.in(Dequantize::q)),
                     shape = rows_of(view.in(Dequantize::q))](const Call& call) {
                      dequantize_blocks({call.in(Dequantize::q), call.in(Dequantize::scale), tile},
                                        shape, call.out(Dequantize::x), call.pool);
                    });
  }
  return launcher(view, context,
                  [group = scale_tile(view.in(Dequantize::q)).cols,
                   shape = rows_of(view.in(Dequantize::q))](const Call& call) {
                    dequantize({call.in(Dequantize::q), call.in(Dequantize::scale), group},
                               call.out(Dequantize::x), shape, call.scratch<float>(), call.pool);
                  });
}

const Binding kQuantizeBindings[] = {
    {{OpCode::amax, "simd", amax_applies, reduce_bytes}, prepare_amax},
    {{OpCode::quant_scale, "simd", scale_applies}, prepare_quant_scale},
    {{OpCode::delayed_scale, "simd", delayed_applies}, prepare_delayed_scale},
    {{OpCode::periodic_scale, "simd", periodic_applies}, prepare_periodic_scale},
    {{OpCode::quantize, "simd", quantize_applies, quantize_bytes}, prepare_quantize},
    {{OpCode::quantize_both, "simd", quantize_applies, quantize_bytes}, prepare_quantize},
    {{OpCode::amax_quantize, "simd", amax_quantize_applies, amax_quantize_bytes},
     prepare_amax_quantize},
    {{OpCode::quantize_groups, "simd", groups_apply, group_bytes}, prepare_quantize_groups},
    {{OpCode::fake_quantize, "simd", fake_applies}, prepare_fake_quantize},
    {{OpCode::dequantize, "simd", dequantize_applies, dequantize_bytes}, prepare_dequantize},
    {{OpCode::add_quantize, "simd", add_applies, group_bytes}, prepare_add_quantize},
};

}  // namespace

std::span<const Binding> quantize_bindings() {
  return kQuantizeBindings;
}

}  // namespace octet::cpu
