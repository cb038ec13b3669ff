// A layer (norm or activation) and the per-tensor quantizer of its result in one, so that the
// unquantized result is never stored. Operands: the layer's, then scale and history, both optional.
// Without a scale the op makes its own: from the amax of its f32 result, or with a history as
// delayed_scale does. With a scale a norm may be given its statistics too, behind the history: what
// the same norm of the same x gave before. Otherwise it gives them. An activation may keep its
// operands in groups beside its result. Likewise the gradients of a gated activation and the
// quantizer that both share; they are rounded to dy's type before they are measured and quantized,
// so the codes are those of the two ops.
#include "ir/ops/quantize_layers.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ir/ops/common.h"
#include "ir/ops/list.h"

namespace octet {

RowLayer row_layer(OpCode layer, const Attrs& attrs) {
  const OpDef& def = op_def(layer);
  if (def.is_norm) return def.is_centred() ? RowLayer::layer_norm : RowLayer::rms_norm;
  const auto* gelu = std::get_if<GeluAttrs>(&attrs);
  if (gelu == nullptr) return RowLayer::gated_silu;
  return gelu->kind == GeluKind::erf ? RowLayer::gelu_erf : RowLayer::gelu_tanh;
}

namespace {

// The op whose first results this one gives as codes; nullptr where there is none.
const OpDef* unquantized(OpCode op) {
  if (op_def(op).store.given_scale == kNoSlot) return nullptr;
  const auto* row = std::ranges::find(ops::kRows, std::optional(op), &OpRow::quantized);
  return row == std::end(ops::kRows) ? nullptr : &op_def(row->code);
}

struct Split {
  template <typename Layer>
  QuantizedLayerAttrs operator()(const LayerQuantizeAttrs<Layer>& a) const {
    return {a.layer, a.q, a.both, a.kept_target};
  }
  QuantizedLayerAttrs operator()(const auto&) const { throw std::bad_variant_access(); }
};

}  // namespace

const OpDef* quantized_layer(OpCode op) {
  const OpDef* layer = unquantized(op);
  return layer != nullptr && is_norm_or_activation(layer->code) ? layer : nullptr;
}

QuantizedLayerAttrs split(const Attrs& attrs) {
  return std::visit(Split{}, attrs);
}

Attrs join(const QuantizedLayerAttrs& parts) {
  return std::visit(
      [&]<typename Layer>(const Layer& layer) -> Attrs {
        using Joined = LayerQuantizeAttrs<Layer>;
        if constexpr (std::is_constructible_v<Attrs, Joined>) {
          return Joined{layer, parts.q, parts.both, parts.kept_target};
        } else {
          throw std::bad_variant_access();
        }
      },
      parts.layer);
}

namespace ops {
namespace {

Types layer_operands(const OpDef& op, Types in) {
  return in.first(std::min<size_t>(in.size(), op.store.given_scale));
}

void need_statistics(const OpDef& op, Types in) {
  std::vector<SlotId> slots = {op.norm.known_mean, op.norm.known_rstd};
  std::erase(slots, kNoSlot);
  const auto is_given = [&](SlotId slot) { return !absent(in, slot); };
  if (std::ranges::none_of(slots, is_given)) return;
  if (absent(in, op.store.given_scale)) fail(op.name, "statistics are given with a scale only");
  for (const SlotId slot : slots) {
    if (absent(in, slot)) fail(op.name, "all statistics are given, or none");
    need_float(op.name, "statistics", in[slot], {in[0].shape[0]});
  }
}

// Nothing is kept of operands that are codes already.
void add_kept(const OpDef& op, const QuantizedLayerAttrs& attrs, Types in, Said said,
              Results& results) {
  if (attrs.kept_target == 0) return;
  const auto is_kept = [&](ScalePlace place) { return !in[place.operand].is_scaled(); };
  if (op.kept == kNoSlot || !std::ranges::all_of(op.scales, is_kept))
    fail(op.name, "operands are kept in groups of an activation that reads them unquantized");
  size_t at = op.kept;
  for (const ScalePlace place : op.scales) {
    const Results operand{in[place.operand]};
    const QuantizeAttrs groups{.target = attrs.kept_target};
    const Said kept = said.subspan(std::min(at, said.size()));
    for (const TensorType& made : defs::quantize_groups.infer(groups, operand, kept))
      results[at++] = made;
  }
}

// How many results the quantizer takes, all of them with one scale.
ptrdiff_t n_values(const OpDef& layer) {
  return std::max<ptrdiff_t>(layer.amax_results, 1);
}

template <OpCode C>
Results infer_fused(const Attrs& attrs, Types in, Said said) {
  const OpDef &op = op_def(C), &layer = *unquantized(C);
  const QuantizedLayerAttrs parts = split(attrs);
  if (emits_amax(parts.layer)) fail(op.name, "expected amax = false");
  const Results plain = layer.infer(parts.layer, layer_operands(op, in));
  need_statistics(op, in);
  const ptrdiff_t n = n_values(layer);
  Results results = infer_store({op, parts.q, parts.both, said}, n, plain[0], in);
  if (layer.is_gradient && results[0].layout.transposed)
    fail(op.name, "expected data by row, got {}", to_string(results[0]));
  if (absent(in, op.norm.known_rstd))
    std::copy(plain.begin() + n, plain.end(), results.begin() + op.store.nonfinite + 1);
  add_kept(op, parts, in, said, results);
  return results;
}

// The layer's results in f32, y alone where its statistics are given; gradients as dy is, which
// they are rounded to before they are measured.
Values emit_layer(Builder& b, const Node& node, const OpDef& layer, const Attrs& attrs) {
  const OpDef& op = op_def(node.op);
  if (!absent(node, op.norm.known_rstd)) return {emit_known(b, node)};
  Values operands = node.operands;
  operands.resize(std::min<size_t>(operands.size(), op.store.given_scale));
  const Dtype dtype = layer.is_gradient ? b.type(operands.front()).dtype : Dtype::f32;
  const ResultTypes wide(layer.own_results(), dtype);
  Values results = b.emit_typed(layer.code, attrs, operands, wide);
  results.resize(wide.size());
  return results;
}

// The op that keeps nothing, and what quantizes its operands in groups.
Values emit_apart(Builder& b, const Node& node, QuantizedLayerAttrs parts, Said said) {
  const OpDef& op = op_def(node.op);
  const QuantizeAttrs groups{.target = std::exchange(parts.kept_target, 0)};
  Values results = b.emit_typed(node.op, join(parts), node.operands, {said.begin(), said.end()});
  results.resize(op.kept, kNoValue);
  for (const ScalePlace place : op.scales) {
    const Values made = b.emit_typed(OpCode::quantize_groups, groups, {node.in(place.operand)},
                                     {said[results.size()]});
    results.insert(results.end(), made.begin(), made.end());
  }
  return results;
}

Values decompose_fused(Builder& b, const Node& node, Said said) {
  const OpDef &op = op_def(node.op), &layer = *unquantized(node.op);
  const QuantizedLayerAttrs parts = split(node.attrs);
  if (parts.kept_target > 0) return emit_apart(b, node, parts, said);
  const Values plain = emit_layer(b, node, layer, parts.layer);
  const auto statistics = plain.begin() + n_values(layer);
  const Values values(plain.begin(), statistics);
  Values results = emit_store(b, node, {op, parts.q, parts.both, said}, values, values);
  std::copy(statistics, plain.end(), results.begin() + op.store.nonfinite + 1);
  return results;
}

template <OpCode C, typename Slots>
constexpr OpDef fused(std::span<const ScalePlace> scales) {
  return define(C, {.infer = infer_fused<C>,
                    .decompose = decompose_fused,
                    .inplace = kShiftedHistory<Slots>,
                    .scales = scales});
}

}  // namespace

Results infer_store(const Store& store, size_t n, const TensorType& x, Types in) {
  const auto& [op, q, both, said] = store;
  const StoreSlots& at = op.store;
  const bool given = !absent(in, at.given_scale), delayed = !absent(in, at.history);
  if (given && delayed) fail(op.name, "a scale that is given has no history");
  const Results quantized{x, given ? in[at.given_scale] : real({})};
  const Results codes =
      quantized_types(q, quantized, said_codes(op.name, said, both, at.transposed));
  Results results(op.results.size(), absent_type());
  std::fill_n(results.begin(), n, codes[0]);
  if (both) std::fill_n(results.begin() + at.transposed, n, codes[1]);
  if (given) return results;
  results[at.scale] = {Dtype::f32, {}};
  results[at.nonfinite] = {Dtype::boolean, {}};
  if (delayed) results[at.next_history] = next_history(in[at.history]);
  return results;
}

Values emit_store(Builder& b, const Node& node, const Store& store, const Values& values,
                  const Values& measured) {
  const StoreSlots& at = store.op.store;
  Values results(node.results.size(), kNoValue);
  ValueId scale = node.in(at.given_scale);
  if (scale == kNoValue) {
    const Values amax = b.emit(OpCode::amax, NoAttrs{}, measured);
    Values by = {amax[AmaxOp::amax]};
    const bool delayed = !absent(node, at.history);
    if (delayed) by.push_back(node.in(at.history));
    const Values made =
        b.emit(delayed ? OpCode::delayed_scale : OpCode::quant_scale, scale_attrs(store.q), by);
    scale = results[at.scale] = made[QuantScale::scale];
    results[at.nonfinite] = amax[AmaxOp::nonfinite];
    if (delayed) results[at.next_history] = made[DelayedScale::next_history];
  }
  const ResultTypes types = said_codes(store.op.name, store.said, store.both, at.transposed);
  for (size_t i = 0; i < values.size(); ++i) {
    const Values codes = emit_quantize(b, store.q, values[i], scale, types);
    results[i] = codes[0];
    if (store.both) results[at.transposed + i] = codes[QuantizeBoth::q_transposed];
  }
  return results;
}

constinit const OpDef defs::rms_norm_quantize =
    fused<OpCode::rms_norm_quantize, RmsNormQuantize>(kScaleOfX<RmsNormQuantize>);
constinit const OpDef defs::layer_norm_quantize =
    fused<OpCode::layer_norm_quantize, LayerNormQuantize>(kScaleOfX<LayerNormQuantize>);
constinit const OpDef defs::gated_act_quantize =
    fused<OpCode::gated_act_quantize, GatedActQuantize>(kScalesOfGate<GatedActQuantize>);
constinit const OpDef defs::gelu_quantize =
    fused<OpCode::gelu_quantize, GeluQuantize>(kScaleOfX<GeluQuantize>);
constinit const OpDef defs::gated_act_grad_quantize =
    fused<OpCode::gated_act_grad_quantize, GatedActGradQuantize>(
        kScalesOfGate<GatedActGradQuantize>);

}  // namespace ops
}  // namespace octet
