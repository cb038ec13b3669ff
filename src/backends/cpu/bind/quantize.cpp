#include "backends/cpu/quantize.h"

#include "backends/cpu/bind/launch.h"
#include "backends/cpu/quantize_layers.h"
#include "backends/cpu/reduce.h"

namespace octet::cpu {
namespace {

// Everything but the last axis is rows.
RowShape rows_of(const TensorType& x) {
  const int64_t cols = x.shape.empty() ? 1 : x.shape.back();
  return {.rows = cols == 0 ? 0 : x.n_elems() / cols, .cols = cols};
}

bool has_codec(Dtype dtype) {
  return is_quantized(dtype) && dtype != Dtype::e8m0;
}

int64_t float_bytes(int64_t n) {
  return n * static_cast<int64_t>(sizeof(float));
}
float* scratch_of(const LaunchArgs& args) {
  return reinterpret_cast<float*>(args.scratch);
}

// Per tensor, or in BF16-scaled groups: formats/quantize.h's rule.
float scale_of(const QuantizeAttrs& q, float amax) {
  return tensor_scale(amax, static_cast<float>(q.target));
}

int64_t amax_scratch(const NodeView& view, int) {
  int64_t largest = 0;
  for (size_t i = 0; i < view.node.operands.size(); ++i)
    largest = std::max(largest, reduce_scratch(view.in(i).n_elems()));
  return largest * static_cast<int64_t>(sizeof(double));
}

bool amax_applies(const NodeView& view) {
  for (size_t i = 0; i < view.node.operands.size(); ++i) {
    if (!is_wide(view.in(i).dtype)) return false;
  }
  return view.out(0).dtype == Dtype::f32;
}

LaunchFn prepare_amax(const NodeView& view, Context& context) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < view.node.operands.size(); ++i) sizes.push_back(view.in(i).n_elems());
  return [types = NodeTypes(view), sizes, &pool = context.pool](const LaunchArgs& args) {
    Amax all;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Amax part =
          amax(types.operand(args, i), sizes[i], reinterpret_cast<double*>(args.scratch), pool);
      all = {std::max(all.value, part.value), all.finite && part.finite};
    }
    *data_out<float>(args, 0) = all.value;
    *data_out<uint8_t>(args, 1) = all.finite ? 0 : 1;
  };
}

// Scalars in f32.
bool scale_applies(const NodeView& view) {
  return view.in(0).dtype == Dtype::f32 && view.out(0).dtype == Dtype::f32 &&
         view.attrs<QuantizeAttrs>().group == 0;
}
bool delayed_applies(const NodeView& view) {
  return scale_applies(view) && view.in(1).dtype == Dtype::f32 && view.out(1).dtype == Dtype::f32;
}

LaunchFn prepare_quant_scale(const NodeView& view, Context&) {
  return [q = view.attrs<QuantizeAttrs>()](const LaunchArgs& args) {
    *data_out<float>(args, 0) = scale_of(q, *data<float>(args, 0));
  };
}

LaunchFn prepare_delayed_scale(const NodeView& view, Context&) {
  return [q = view.attrs<QuantizeAttrs>(), n = view.in(1).n_elems()](const LaunchArgs& args) {
    const float now = *data<float>(args, 0);
    const float* history = data<float>(args, 1);
    float* next = data_out<float>(args, 1);
    const float largest = n == 0 ? 0.0f : std::max(0.0f, *std::max_element(history, history + n));
    *data_out<float>(args, 0) = scale_of(q, largest > 0 ? largest : now);
    if (n == 0) return;
    std::copy(history + 1, history + n, next);
    next[n - 1] = now;
  };
}

// The codes that a per-tensor quantizer writes: results [by row,] [transposed].
struct CodesOf {
  CodesOf(const NodeView& view, const QuantizeAttrs& q)
      : format(q.dtype), transposed(q.transposed), both(view.node.op == OpCode::quantize_both) {
    zero_code = static_cast<uint8_t>(find_format(format).zero_code);
    if (transposed || both) padded_rows = view.out(both ? 1 : 0).shape[1];
  }
  TensorCodes at(const LaunchArgs& args, float scale) const {
    TensorCodes codes{
        .format = format, .scale = scale, .padded_rows = padded_rows, .zero_code = zero_code};
    if (!transposed || both) codes.rows = data_out<uint8_t>(args, 0);
    if (transposed || both) codes.transposed = data_out<uint8_t>(args, both ? 1 : 0);
    return codes;
  }
  Dtype format;
  bool transposed, both;
  int64_t padded_rows = 0;
  uint8_t zero_code = 0;
};

bool quantize_applies(const NodeView& view) {
  return is_wide(view.in(0).dtype) && view.in(1).dtype == Dtype::f32 &&
         has_codec(view.out(0).dtype);
}

int64_t quantize_bytes(const NodeView& view, int n_threads) {
  const auto& q = view.attrs<QuantizeAttrs>();
  if (!q.transposed && view.node.op == OpCode::quantize) return 0;
  return float_bytes(quantize_scratch(rows_of(view.in(0)), 0, n_threads));
}

LaunchFn prepare_quantize(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), codes = CodesOf(view, view.attrs<QuantizeAttrs>()),
          shape = rows_of(view.in(0)), &pool = context.pool](const LaunchArgs& args) {
    quantize(types.operand(args, 0), codes.at(args, *data<float>(args, 1)), shape, scratch_of(args),
             pool);
  };
}

int64_t group_bytes(const NodeView& view, int n_threads) {
  return float_bytes(
      quantize_scratch(rows_of(view.in(0)), view.attrs<QuantizeAttrs>().group, n_threads));
}

GroupCodes groups_of(const QuantizeAttrs& q) {
  return {.format = q.dtype, .target = static_cast<float>(q.target), .group = q.group};
}

bool groups_apply(const NodeView& view) {
  return is_wide(view.in(0).dtype) && has_codec(view.out(0).dtype);
}

LaunchFn prepare_quantize_groups(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), out = groups_of(view.attrs<QuantizeAttrs>()),
          shape = rows_of(view.in(0)), &pool = context.pool](const LaunchArgs& args) {
    GroupCodes codes = out;
    codes.codes = data_out<uint8_t>(args, 0);
    codes.scales = data_out<uint16_t>(args, 1);
    quantize_groups(types.operand(args, 0), codes, shape, scratch_of(args), pool);
  };
}

bool add_applies(const NodeView& view) {
  return is_wide(view.in(0).dtype) && is_wide(view.in(1).dtype) && is_wide(view.out(0).dtype) &&
         has_codec(view.out(1).dtype);
}

LaunchFn prepare_add_quantize(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), out = groups_of(view.attrs<QuantizeAttrs>()),
          shape = rows_of(view.in(0)), &pool = context.pool](const LaunchArgs& args) {
    GroupCodes codes = out;
    codes.codes = data_out<uint8_t>(args, 1);
    codes.scales = data_out<uint16_t>(args, 2);
    add_quantize({types.operand(args, 0), types.operand(args, 1), types.result(args, 0), codes},
                 shape, scratch_of(args), pool);
  };
}

bool dequantize_applies(const NodeView& view) {
  return has_codec(view.in(0).dtype) && is_wide(view.in(1).dtype) && is_wide(view.out(0).dtype);
}

LaunchFn prepare_dequantize(const NodeView& view, Context& context) {
  return [types = NodeTypes(view), group = view.attrs<QuantizeAttrs>().group,
          shape = rows_of(view.in(0)), &pool = context.pool](const LaunchArgs& args) {
    dequantize({types.operand(args, 0), types.operand(args, 1), group}, types.result(args, 0),
               shape, scratch_of(args), pool);
  };
}

// A stored operand is codes with its scales, or plain where group is 0.
bool is_stored(const NodeView& view, int64_t group, size_t operand, size_t scales) {
  if (group == 0) return is_wide(view.in(operand).dtype);
  return has_codec(view.in(operand).dtype) && view.has(scales) && is_wide(view.in(scales).dtype);
}

Stored stored(const NodeTypes& types, const LaunchArgs& args, int64_t group,
              std::pair<size_t, size_t> places) {
  if (group == 0) return {types.operand(args, places.first)};
  return {types.operand(args, places.first), types.operand(args, places.second), group};
}

bool norm_quantize_applies(const NodeView& view) {
  const auto& a = view.attrs<NormQuantizeAttrs>();
  if (!is_stored(view, a.norm.group, 0, 2) || !has_codec(view.out(0).dtype)) return false;
  return view.in_is(1, {Dtype::f32, Dtype::bf16}) && view.in_is(3, {Dtype::f32});
}

int64_t norm_quantize_bytes(const NodeView& view, int n_threads) {
  return float_bytes(
      quantize_scratch(rows_of(view.in(0)), view.attrs<NormQuantizeAttrs>().norm.group, n_threads));
}

OwnScale own_scale(const LaunchArgs& args, const QuantizeAttrs& q, bool given) {
  if (given) return {};
  return {static_cast<float>(q.target), data_out<float>(args, 1), data_out<uint8_t>(args, 2)};
}

LaunchFn prepare_rms_norm_quantize(const NodeView& view, Context& context) {
  const auto& a = view.attrs<NormQuantizeAttrs>();
  return [types = NodeTypes(view), a, codes = CodesOf(view, a.q), given = view.has(3),
          shape = rows_of(view.in(0)), &pool = context.pool](const LaunchArgs& args) {
    const RmsNormQuantize norm{.x = stored(types, args, a.norm.group, {0, 2}),
                               .weight = types.operand(args, 1),
                               .eps = static_cast<float>(a.norm.eps),
                               .rstd = given ? nullptr : data_out<float>(args, 3),
                               .own = own_scale(args, a.q, given),
                               .out = codes.at(args, given ? *data<float>(args, 3) : 1.0f)};
    rms_norm_quantize(norm, shape, scratch_of(args), pool);
  };
}

bool gated_quantize_applies(const NodeView& view) {
  const int64_t group = view.attrs<GatedActQuantizeAttrs>().act.group;
  return is_stored(view, group, 0, 2) && is_stored(view, group, 1, 3) &&
         has_codec(view.out(0).dtype) && view.in_is(4, {Dtype::f32});
}

int64_t gated_quantize_bytes(const NodeView& view, int n_threads) {
  return float_bytes(quantize_scratch(rows_of(view.in(0)),
                                      view.attrs<GatedActQuantizeAttrs>().act.group, n_threads));
}

LaunchFn prepare_gated_quantize(const NodeView& view, Context& context) {
  const auto& a = view.attrs<GatedActQuantizeAttrs>();
  return [types = NodeTypes(view), a, codes = CodesOf(view, a.q), given = view.has(4),
          shape = rows_of(view.in(0)), &pool = context.pool](const LaunchArgs& args) {
    gated_silu_quantize({.gate = stored(types, args, a.act.group, {0, 2}),
                         .up = stored(types, args, a.act.group, {1, 3}),
                         .own = own_scale(args, a.q, given),
                         .out = codes.at(args, given ? *data<float>(args, 4) : 1.0f)},
                        shape, scratch_of(args), pool);
  };
}

const Binding kBindings[] = {
    {OpCode::amax, amax_applies, amax_scratch, prepare_amax},
    {OpCode::quant_scale, scale_applies, nullptr, prepare_quant_scale},
    {OpCode::delayed_scale, delayed_applies, nullptr, prepare_delayed_scale},
    {OpCode::quantize, quantize_applies, quantize_bytes, prepare_quantize},
    {OpCode::quantize_both, quantize_applies, quantize_bytes, prepare_quantize},
    {OpCode::quantize_groups, groups_apply, group_bytes, prepare_quantize_groups},
    {OpCode::dequantize, dequantize_applies, group_bytes, prepare_dequantize},
    {OpCode::add_quantize, add_applies, group_bytes, prepare_add_quantize},
    {OpCode::rms_norm_quantize, norm_quantize_applies, norm_quantize_bytes,
     prepare_rms_norm_quantize},
    {OpCode::gated_act_quantize, gated_quantize_applies, gated_quantize_bytes,
     prepare_gated_quantize},
};

}  // namespace

std::span<const Binding> quantize_bindings() {
  return kBindings;
}

}  // namespace octet::cpu
