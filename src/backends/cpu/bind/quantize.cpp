#include "backends/cpu/quantize/quantize.h"

#include <numeric>

#include "backends/cpu/bind/codes.h"
#include "backends/cpu/elementwise/reduce.h"
#include "backends/cpu/quantize/quantize_blocks.h"
#include "formats/periodic_scale.h"

namespace octet::cpu {
namespace {

// Per tensor: formats/quantize.h's rules.
float scale_of(const AmaxScaleAttrs& q, float amax) {
  const auto target = static_cast<float>(q.target);
  return q.rule == ScaleRule::power_ceil ? power_scale(amax, target) : tensor_scale(amax, target);
}

int64_t amax_scratch(const NodeView& view) {
  int64_t largest = 0;
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    if (view.has(i)) largest = std::max(largest, reduce_scratch(view.in(i).n_elems()));
  }
  return largest * static_cast<int64_t>(sizeof(double));
}

bool amax_applies(const NodeView& view) {
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    if (!is_f32_or_bf16(view.in(i).dtype) && view.in(i).dtype != Dtype::boolean) return false;
  }
  return view.out(AmaxOp::amax).dtype == Dtype::f32;
}

// The maximum of a node's operands, some of which may be flags.
struct AmaxOf {
  AmaxOf(const NodeView& view, const std::vector<size_t>& operands)
      : types(view), operands(operands) {
    for (const size_t i : operands) sizes.push_back(view.in(i).n_elems());
  }
  Amax operator()(const LaunchArgs& args, ThreadPool& pool) const {
    Amax all;
    for (size_t k = 0; k < operands.size(); ++k) {
      const size_t i = operands[k];
      if (types.in[i] == Dtype::boolean) {
        all.finite = all.finite && *data<uint8_t>(args, i) == 0;
        continue;
      }
      const Amax part =
          amax(types.operand(args, i), sizes[k], reinterpret_cast<double*>(args.scratch), pool);
      all = {std::max(all.value, part.value), all.finite && part.finite};
    }
    return all;
  }
  NodeTypes types;
  std::vector<size_t> operands;
  std::vector<int64_t> sizes;
};

LaunchFn prepare_amax(const NodeView& view, Context& context) {
  std::vector<size_t> operands(view.node.operands.size());
  std::iota(operands.begin(), operands.end(), 0);
  return [amax_of = AmaxOf(view, operands), &pool = context.pool](const LaunchArgs& args) {
    const Amax all = amax_of(args, pool);
    *data_out<float>(args, AmaxOp::amax) = all.value;
    *data_out<uint8_t>(args, AmaxOp::nonfinite) = all.finite ? 0 : 1;
  };
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

LaunchFn prepare_quant_scale(const NodeView& view, Context&) {
  return [q = view.attrs<AmaxScaleAttrs>()](const LaunchArgs& args) {
    *data_out<float>(args, QuantScale::scale) = scale_of(q, *data<float>(args, QuantScale::amax));
  };
}

LaunchFn prepare_delayed_scale(const NodeView& view, Context&) {
  return [q = view.attrs<AmaxScaleAttrs>(),
          n = view.in(DelayedScale::history).n_elems()](const LaunchArgs& args) {
    const float now = *data<float>(args, DelayedScale::amax);
    const AmaxHistory history{data<float>(args, DelayedScale::history),
                              data_out<float>(args, DelayedScale::next_history), n};
    *data_out<float>(args, DelayedScale::scale) = scale_of(q, delayed_amax(history, now));
  };
}

LaunchFn prepare_periodic_scale(const NodeView& view, Context&) {
  const auto target = static_cast<float>(view.attrs<AmaxScaleAttrs>().target);
  return [target](const LaunchArgs& args) {
    *data_out<float>(args, PeriodicScale::scale) = periodic_scale(
        *data<float>(args, PeriodicScale::before), *data<float>(args, PeriodicScale::amax), target);
  };
}

bool quantize_applies(const NodeView& view) {
  return is_f32_or_bf16(view.in(Quantize::x).dtype) &&
         view.in(Quantize::scale).dtype == Dtype::f32 && has_codec(view.out(Quantize::q).dtype);
}

std::optional<SlotId> transposed_slot(const NodeView& view) {
  if (!view.gives(QuantizeBoth::q_transposed)) return std::nullopt;
  return QuantizeBoth::q_transposed;
}

LaunchFn prepare_rounded(const NodeView& view, const QuantizeAttrs& q, Context& context) {
  return [types = NodeTypes(view), codes = CodesOf(view, q, transposed_slot(view)), q,
          shape = rows_of(view.in(Quantize::x)), &pool = context.pool](const LaunchArgs& args) {
    quantize_rounded(types.operand(args, Quantize::x), q,
                     codes.at(args, *data<float>(args, Quantize::scale)), shape, pool);
  };
}

int64_t quantize_bytes(const NodeView& view) {
  const bool is_by_row = !view.out(Quantize::q).layout.transposed;
  if (is_by_row && !transposed_slot(view)) return 0;
  return float_bytes(quantize_scratch(rows_of(view.in(Quantize::x)), 0, view.target.n_threads));
}

LaunchFn prepare_quantize(const NodeView& view, Context& context) {
  if (const auto& q = view.attrs<QuantizeAttrs>(); q.rounding != Rounding::near)
    return prepare_rounded(view, q, context);
  return [types = NodeTypes(view),
          codes = CodesOf(view, view.attrs<QuantizeAttrs>(), transposed_slot(view)),
          shape = rows_of(view.in(Quantize::x)), &pool = context.pool](const LaunchArgs& args) {
    quantize(types.operand(args, Quantize::x), codes.at(args, *data<float>(args, Quantize::scale)),
             shape, scratch_of(args), pool);
  };
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
  return std::max(quantize, amax_scratch(view));
}

LaunchFn prepare_amax_quantize(const NodeView& view, Context& context) {
  const auto& a = view.attrs<AmaxQuantizeAttrs>();
  std::vector<size_t> measured;
  if (a.measures) measured.push_back(AmaxQuantize::x);
  for (size_t i = AmaxQuantize::maximum; i < view.node.operands.size(); ++i) measured.push_back(i);
  const auto both = a.both ? std::optional<SlotId>(AmaxQuantize::q_transposed) : std::nullopt;
  const int64_t n_history =
      view.has(AmaxQuantize::history) ? view.in(AmaxQuantize::history).n_elems() : 0;
  return [amax_of = AmaxOf(view, measured), codes = CodesOf(view, a.q, both), q = scale_attrs(a.q),
          n_history, shape = rows_of(view.in(AmaxQuantize::x)),
          &pool = context.pool](const LaunchArgs& args) {
    const Amax all = amax_of(args, pool);
    AmaxHistory history;
    if (n_history > 0)
      history = {data<float>(args, AmaxQuantize::history),
                 data_out<float>(args, AmaxQuantize::next_history), n_history};
    const float scale = scale_of(q, delayed_amax(history, all.value));
    *data_out<float>(args, AmaxQuantize::scale) = scale;
    *data_out<uint8_t>(args, AmaxQuantize::nonfinite) = all.finite ? 0 : 1;
    quantize(amax_of.types.operand(args, AmaxQuantize::x), codes.at(args, scale), shape,
             scratch_of(args), pool);
  };
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
    return [types = NodeTypes(view), q = view.attrs<QuantizeAttrs>(),
            tile = scale_tile(made_groups(view)), shape = rows_of(view.in(QuantizeGroups::x)),
            &pool = context.pool](const LaunchArgs& args) {
      quantize_blocks(
          types.operand(args, QuantizeGroups::x), q, shape,
          {types.result(args, QuantizeGroups::q), types.result(args, QuantizeGroups::scale), tile},
          pool);
    };
  }
  return [types = NodeTypes(view), out = groups_of(view),
          shape = rows_of(view.in(QuantizeGroups::x)),
          &pool = context.pool](const LaunchArgs& args) {
    GroupCodes codes = out;
    codes.codes = data_out<uint8_t>(args, QuantizeGroups::q);
    codes.scales = data_out<uint16_t>(args, QuantizeGroups::scale);
    quantize_groups(types.operand(args, QuantizeGroups::x), codes, shape, scratch_of(args), pool);
  };
}

// Others are the reference kernel's.
bool fake_applies(const NodeView& view) {
  return view.in(Unary::x).dtype == Dtype::f32 && view.out(Unary::y).dtype == Dtype::f32;
}

LaunchFn prepare_fake_quantize(const NodeView& view, Context& context) {
  const RowShape shape = rows_of(view.in(Unary::x));
  return [quantizer = fake_quantizer(view.attrs<FakeQuantizeAttrs>(), shape.cols), shape,
          &pool = context.pool](const LaunchArgs& args) {
    fake_quantize(quantizer, shape, data<float>(args, Unary::x), data_out<float>(args, Unary::y),
                  pool);
  };
}

bool add_applies(const NodeView& view) {
  return in_default_groups(view) && is_f32_or_bf16(view.in(octet::AddQuantize::a).dtype) &&
         is_f32_or_bf16(view.in(octet::AddQuantize::b).dtype) &&
         is_f32_or_bf16(view.out(octet::AddQuantize::sum).dtype) &&
         has_codec(view.out(octet::AddQuantize::q).dtype);
}

LaunchFn prepare_add_quantize(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), out = groups_of(view),
          shape = rows_of(view.in(octet::AddQuantize::a)),
          &pool = context.pool](const LaunchArgs& args) {
    GroupCodes codes = out;
    codes.codes = data_out<uint8_t>(args, octet::AddQuantize::q);
    codes.scales = data_out<uint16_t>(args, octet::AddQuantize::scale);
    add_quantize(
        {types.operand(args, octet::AddQuantize::a), types.operand(args, octet::AddQuantize::b),
         types.result(args, octet::AddQuantize::sum), codes},
        shape, scratch_of(args), pool);
  };
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
    return [types = NodeTypes(view), tile = scale_tile(view.in(Dequantize::q)),
            shape = rows_of(view.in(Dequantize::q)), &pool = context.pool](const LaunchArgs& args) {
      dequantize_blocks(
          {types.operand(args, Dequantize::q), types.operand(args, Dequantize::scale), tile}, shape,
          types.result(args, Dequantize::x), pool);
    };
  }
  return [types = NodeTypes(view), group = scale_tile(view.in(Dequantize::q)).cols,
          shape = rows_of(view.in(Dequantize::q)), &pool = context.pool](const LaunchArgs& args) {
    dequantize({types.operand(args, Dequantize::q), types.operand(args, Dequantize::scale), group},
               types.result(args, Dequantize::x), shape, scratch_of(args), pool);
  };
}

const Binding kQuantizeBindings[] = {
    {{OpCode::amax, "simd", amax_applies, amax_scratch}, prepare_amax},
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
