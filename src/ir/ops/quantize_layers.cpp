// A layer (norm or activation) and the per-tensor quantizer of its result in one, so that the
// unquantized result is never stored. Operands: the layer's, then scale and history, both optional.
// Without a scale the op makes its own: from the amax of its f32 result, or with a history as
// delayed_scale does. With a scale a norm may be given its statistics too, behind the history: what
// the same norm of the same x gave before. Otherwise it gives them. An activation may keep its
// operands in groups beside its result.
#include "ir/ops/quantize_layers.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet {
namespace {

template <typename Op>
constexpr QuantizedLayer layer_row(OpCode layer) {
  const OpCode op = *ops::row(layer).quantized;
  QuantizedLayer row{.op = op,
                     .layer = layer,
                     .given_scale = ops::row(op).given_scale,
                     .history = Op::history,
                     .known_mean = kNoSlot,
                     .known_rstd = kNoSlot,
                     .mean = kNoSlot,
                     .rstd = kNoSlot,
                     .next_history = Op::next_history,
                     .q_transposed = Op::q_transposed};
  if constexpr (requires { Op::kept_gate; }) row.kept = Op::kept_gate;
  if constexpr (requires { Op::kept_x; }) row.kept = Op::kept_x;
  if constexpr (requires { Op::known_mean; }) row.known_mean = Op::known_mean, row.mean = Op::mean;
  if constexpr (requires { Op::known_rstd; }) row.known_rstd = Op::known_rstd, row.rstd = Op::rstd;
  static_assert(Op::q == kLayerQ && Op::scale == kLayerScale && Op::nonfinite == kLayerNonfinite);
  return row;
}

constexpr QuantizedLayer kLayers[] = {
    layer_row<RmsNormQuantize>(OpCode::rms_norm),
    layer_row<LayerNormQuantize>(OpCode::layer_norm),
    layer_row<GatedActQuantize>(OpCode::gated_act),
    layer_row<GeluQuantize>(OpCode::gelu),
};

}  // namespace

RowLayer row_layer(OpCode layer, const Attrs& attrs) {
  const OpDef& def = op_def(layer);
  if (def.is_norm) return def.is_centred ? RowLayer::layer_norm : RowLayer::rms_norm;
  const auto* gelu = std::get_if<GeluAttrs>(&attrs);
  if (gelu == nullptr) return RowLayer::gated_silu;
  return gelu->kind == GeluKind::erf ? RowLayer::gelu_erf : RowLayer::gelu_tanh;
}

const QuantizedLayer* quantized_layer(OpCode op) {
  const auto* it = std::find_if(std::begin(kLayers), std::end(kLayers),
                                [&](const QuantizedLayer& row) { return row.op == op; });
  return it == std::end(kLayers) ? nullptr : it;
}

QuantizedLayerAttrs split(const Attrs& attrs) {
  if (const auto* norm = std::get_if<NormQuantizeAttrs>(&attrs))
    return {norm->norm, norm->q, norm->both};
  if (const auto* act = std::get_if<GatedActQuantizeAttrs>(&attrs))
    return {act->act, act->q, act->both, act->kept_target};
  const auto& gelu = std::get<GeluQuantizeAttrs>(attrs);
  return {gelu.act, gelu.q, gelu.both, gelu.kept_target};
}

Attrs join(const QuantizedLayerAttrs& parts) {
  if (const auto* norm = std::get_if<NormAttrs>(&parts.layer))
    return NormQuantizeAttrs{.norm = *norm, .q = parts.q, .both = parts.both};
  if (const auto* act = std::get_if<GatedActAttrs>(&parts.layer))
    return GatedActQuantizeAttrs{*act, parts.q, parts.both, parts.kept_target};
  return GeluQuantizeAttrs{std::get<GeluAttrs>(parts.layer), parts.q, parts.both,
                           parts.kept_target};
}

namespace ops {
namespace {

Types layer_operands(const QuantizedLayer& op, Types in) {
  return in.first(std::min<size_t>(in.size(), op.given_scale));
}

// Slots of the statistics that the op has, in order: mean, rstd.
std::vector<SlotId> known_statistics(const QuantizedLayer& op) {
  std::vector<SlotId> slots;
  if (op.known_mean != kNoSlot) slots.push_back(op.known_mean);
  if (op.known_rstd != kNoSlot) slots.push_back(op.known_rstd);
  return slots;
}

void need_statistics(const QuantizedLayer& op, Types in) {
  const std::string_view name = op_def(op.op).name;
  const auto slots = known_statistics(op);
  const auto is_given = [&](SlotId slot) { return !absent(in, slot); };
  if (std::none_of(slots.begin(), slots.end(), is_given)) return;
  if (absent(in, op.given_scale)) fail(name, "statistics are given with a scale only");
  for (const SlotId slot : slots) {
    if (absent(in, slot)) fail(name, "all statistics are given, or none");
    need_float(name, "statistics", in[slot], {in[0].shape[0]});
  }
}

// Nothing is kept of operands that are codes already.
void add_kept(const QuantizedLayer& op, const QuantizedLayerAttrs& attrs, Types in, Said said,
              Results& results) {
  if (attrs.kept_target == 0) return;
  const std::string_view name = op_def(op.op).name;
  const auto places = op_def(op.layer).scales;
  const auto is_kept = [&](ScalePlace place) { return !in[place.operand].is_scaled(); };
  if (op.kept == kNoSlot || !std::ranges::all_of(places, is_kept))
    fail(name, "operands are kept in groups of an activation that reads them unquantized");
  size_t at = op.kept;
  for (const ScalePlace place : places) {
    const Results operand{in[place.operand]};
    const QuantizeAttrs groups{.target = attrs.kept_target};
    const Said kept = said.subspan(std::min(at, said.size()));
    for (const TensorType& made : defs::quantize_groups.infer(groups, operand, kept))
      results[at++] = made;
  }
}

template <OpCode C>
Results infer_fused(const Attrs& attrs, Types in, Said said) {
  const QuantizedLayer& op = *quantized_layer(C);
  const QuantizedLayerAttrs parts = split(attrs);
  const auto& [layer, q, both, kept_target] = parts;
  const Results plain = op_def(op.layer).infer(layer, layer_operands(op, in));
  const bool given = !absent(in, op.given_scale), delayed = !absent(in, op.history);
  if (given && delayed) fail(op_def(C).name, "a scale that is given has no history");
  need_statistics(op, in);
  const Results quantized{plain[0], given ? in[op.given_scale] : real({})};
  const Results codes =
      quantized_types(q, quantized, said_codes(op_def(C).name, said, both, op.q_transposed));
  Results results(op_def(C).results.size(), absent_type());
  results[kLayerQ] = codes[0];
  if (!given) {
    results[kLayerScale] = {Dtype::f32, {}};
    results[kLayerNonfinite] = {Dtype::boolean, {}};
  }
  if (absent(in, op.known_rstd))
    std::copy(plain.begin() + 1, plain.end(), results.begin() + kLayerNonfinite + 1);
  if (delayed) results[op.next_history] = next_history(in[op.history]);
  if (both) results[op.q_transposed] = codes[1];
  add_kept(op, parts, in, said, results);
  return results;
}

// y in f32, of a norm whose statistics are given.
ValueId emit_known(Builder& b, const Node& node, const QuantizedLayer& op) {
  const ValueId x = emit_f32(b, node, op_def(op.layer).scales[0]);
  const bool centred = op_def(op.layer).is_centred;
  const SlotId weight = centred ? SlotId{LayerNorm::weight} : SlotId{RmsNorm::weight};
  return emit_normalized(b, {x, node.in(op.known_mean), node.in(op.known_rstd), node.in(weight),
                             centred ? node.in(LayerNorm::bias) : kNoValue});
}

// The layer's results in f32; y alone where its statistics are given.
Values emit_layer(Builder& b, const Node& node, const QuantizedLayer& op, const Attrs& layer) {
  if (node.in(op.known_rstd) != kNoValue) return {emit_known(b, node, op)};
  Values operands = node.operands;
  operands.resize(std::min<size_t>(operands.size(), op.given_scale));
  const ResultTypes wide(op_def(op.layer).results.size(), Dtype::f32);
  return b.emit_typed(op.layer, layer, operands, wide);
}

// The op that keeps nothing, and what quantizes its operands in groups.
Values emit_apart(Builder& b, const Node& node, const QuantizedLayer& op, QuantizedLayerAttrs parts,
                  Said said) {
  const QuantizeAttrs groups{.target = std::exchange(parts.kept_target, 0)};
  Values results = b.emit_typed(node.op, join(parts), node.operands, {said.begin(), said.end()});
  results.resize(op.kept, kNoValue);
  for (const ScalePlace place : op_def(op.layer).scales) {
    const Values made = b.emit_typed(OpCode::quantize_groups, groups, {node.in(place.operand)},
                                     {said[results.size()]});
    results.insert(results.end(), made.begin(), made.end());
  }
  return results;
}

template <OpCode C>
Values decompose_fused(Builder& b, const Node& node, Said said) {
  const QuantizedLayer& op = *quantized_layer(C);
  const QuantizedLayerAttrs parts = split(node.attrs);
  const auto& [layer, q, both, kept_target] = parts;
  if (kept_target > 0) return emit_apart(b, node, op, parts, said);
  const Values plain = emit_layer(b, node, op, layer);
  Values results(node.results.size(), kNoValue);
  ValueId scale = node.in(op.given_scale);
  if (scale == kNoValue) {
    const OwnScale own = emit_own_scale(b, scale_attrs(q), {plain[0]}, node.in(op.history));
    scale = results[kLayerScale] = own.scale;
    results[kLayerNonfinite] = own.nonfinite;
    if (own.next_history != kNoValue) results[op.next_history] = own.next_history;
  }
  std::copy(plain.begin() + 1, plain.end(), results.begin() + kLayerNonfinite + 1);
  const Values codes =
      emit_quantize(b, q, plain[0], scale, said_codes(op_def(C).name, said, both, op.q_transposed));
  results[kLayerQ] = codes[0];
  if (both) results[op.q_transposed] = codes[QuantizeBoth::q_transposed];
  return results;
}

template <OpCode C, typename Slots>
constexpr OpDef fused(std::span<const ScalePlace> scales) {
  return define(C, {.infer = infer_fused<C>,
                    .decompose = decompose_fused<C>,
                    .inplace = kShiftedHistory<Slots>,
                    .scales = scales});
}

}  // namespace

OwnScale emit_own_scale(Builder& b, const AmaxScaleAttrs& attrs, const ValueIds& values,
                        ValueId history) {
  const Values amax = b.emit(OpCode::amax, NoAttrs{}, values);
  if (history == kNoValue) {
    const ValueId scale = b.emit1(OpCode::quant_scale, attrs, {amax[AmaxOp::amax]});
    return {scale, amax[AmaxOp::nonfinite], kNoValue};
  }
  const Values made = b.emit(OpCode::delayed_scale, attrs, {amax[AmaxOp::amax], history});
  return {made[DelayedScale::scale], amax[AmaxOp::nonfinite], made[DelayedScale::next_history]};
}

constinit const OpDef defs::rms_norm_quantize =
    fused<OpCode::rms_norm_quantize, RmsNormQuantize>(kScaleOfX<RmsNormQuantize>);
constinit const OpDef defs::layer_norm_quantize =
    fused<OpCode::layer_norm_quantize, LayerNormQuantize>(kScaleOfX<LayerNormQuantize>);
constinit const OpDef defs::gated_act_quantize =
    fused<OpCode::gated_act_quantize, GatedActQuantize>(kScalesOfGate<GatedActQuantize>);
constinit const OpDef defs::gelu_quantize =
    fused<OpCode::gelu_quantize, GeluQuantize>(kScaleOfX<GeluQuantize>);

}  // namespace ops
}  // namespace octet
