#include "backends/cuda/params/quantize.h"

#include <algorithm>

#include "backends/cuda/target/bind/binding.h"
#include "backends/cuda/target/choose/quantize.h"
#include "ir/ops/list.h"

namespace octet::cuda {
namespace {

bool amax_applies(const NodeView& view) {
  bool high_precision = view.out(AmaxOp::amax).dtype == Dtype::f32;
  for (size_t i = 0; i < view.node.operands.size(); ++i)
    high_precision = high_precision &&
                     (is_high_precision(view.in(i).dtype) || view.in(i).dtype == Dtype::boolean);
  return high_precision;
}
int64_t amax_scratch(const NodeView& view) {
  return amax_scratch_bytes(std::ssize(view.node.operands));
}
KernelSpec amax_spec(const NodeView& view) {
  return chosen_spec(KernelId::amax, AmaxParams{std::ssize(view.node.operands)},
                     list_operands(view, 0));
}

KernelSpec any_of_spec(const NodeView& view) {
  std::vector<int64_t> tail;
  for (size_t i = 0; i < view.node.operands.size(); ++i) tail.push_back(view.in(i).n_elems());
  return chosen_spec(KernelId::any_of, AnyOfParams{std::ssize(view.node.operands)}, tail);
}

bool scale_applies(const NodeView& view) {
  return view.attrs<AmaxScaleAttrs>().rule == ScaleRule::linear &&
         view.in_is(DelayedScale::amax, {Dtype::f32}) &&
         view.in_is(DelayedScale::history, {Dtype::f32}) &&
         view.out(DelayedScale::scale).dtype == Dtype::f32;
}
KernelSpec scale_spec(const NodeView& view) {
  const bool delayed = view.has(DelayedScale::history);
  ScaleParams p;
  p.target = static_cast<float>(view.attrs<AmaxScaleAttrs>().target);
  p.history = delayed ? view.in(DelayedScale::history).n_elems() : 0;
  return chosen_spec(delayed ? KernelId::delayed_scale : KernelId::quant_scale, p);
}

bool quantize_applies(const NodeView& view) {
  return is_high_precision(view.in(Quantize::x).dtype) &&
         view.in(Quantize::scale).dtype == Dtype::f32 && has_codec(view.out(Quantize::q).dtype);
}
// With both layouts transposed_at is the result of the second.
QuantizeParams quantize_params(const NodeView& view, const QuantizeAttrs& q, bool both,
                               SlotId transposed_at) {
  QuantizeParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(Quantize::x));
  p.x = view.in(Quantize::x).dtype;
  p.codes = view.out(Quantize::q).dtype;
  p.by_row = !view.out(Quantize::q).layout.transposed;
  p.transposed = both || !p.by_row;
  const SlotId at = both ? transposed_at : SlotId{Quantize::q};
  if (p.transposed) p.padded_rows = view.out(at).stored_shape()[1];
  p.rounding = q.rounding;
  p.source = q.source;
  p.limit = static_cast<float>(q.limit);
  p.stream = q.stream;
  return p;
}
KernelSpec quantize_spec(const NodeView& view) {
  const bool both = view.gives(QuantizeBoth::q_transposed);
  return chosen_spec(
      both ? KernelId::quantize_both : KernelId::quantize,
      quantize_params(view, view.attrs<QuantizeAttrs>(), both, QuantizeBoth::q_transposed));
}

static_assert(kMaxMaxima >= ops::kMaxMaxima);
bool amax_quantize_applies(const NodeView& view) {
  bool high_precision = view.attrs<AmaxQuantizeAttrs>().q.has_default_scaling() &&
                        is_high_precision(view.in(AmaxQuantize::x).dtype) &&
                        view.in_is(AmaxQuantize::history, {Dtype::f32});
  for (size_t i = AmaxQuantize::maximum; i < view.node.operands.size(); ++i)
    high_precision =
        high_precision && (view.in(i).dtype == Dtype::f32 || view.in(i).dtype == Dtype::boolean);
  return high_precision && is_gemm_operand(view.out(AmaxQuantize::q).dtype);
}
KernelSpec amax_quantize_spec(const NodeView& view) {
  const auto& a = view.attrs<AmaxQuantizeAttrs>();
  AmaxQuantizeParams p;
  p.quantize = quantize_params(view, a.q, a.both, AmaxQuantize::q_transposed);
  p.target = static_cast<float>(a.q.target);
  p.n_history = view.has(AmaxQuantize::history)
                    ? static_cast<int32_t>(view.in(AmaxQuantize::history).n_elems())
                    : 0;
  p.measures = a.measures;
  if (a.both) p.transposed_at = AmaxQuantize::q_transposed;
  std::vector<int64_t> tail = list_operands(view, AmaxQuantize::maximum);
  p.n_maxima = static_cast<int32_t>(tail.size() / 2);
  if (a.measures) {
    const TensorType& x = view.in(AmaxQuantize::x);
    tail.insert(tail.begin(), {x.n_elems(), static_cast<int64_t>(x.dtype)});
  }
  p.known = !a.measures && p.n_maxima == 1 && view.in(AmaxQuantize::maximum).dtype == Dtype::f32;
  return chosen_spec(KernelId::amax_quantize, p, tail);
}

GroupParams group_params(const NodeView& view) {
  const auto& q = view.attrs<QuantizeAttrs>();
  const TensorType& codes = made_groups(view);
  GroupParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(AddQuantize::a));
  p.group = scale_tile(codes).cols;
  p.target = static_cast<float>(q.target);
  p.codes = codes.dtype;
  p.adds = view.gives(AddQuantize::scale);
  p.a = view.in(AddQuantize::a).dtype;
  p.b = p.adds ? view.in(AddQuantize::b).dtype : p.a;
  p.sum = p.adds ? view.out(AddQuantize::sum).dtype : p.a;
  p.rule = q.rule;
  p.scales = codes.granularity.scale;
  return p;
}
// Groups of a row, or rows, rounded to nearest.
bool groups_apply(const NodeView& view) {
  const GroupParams p = group_params(view);
  const TensorType& codes = made_groups(view);
  return is_high_precision(p.a) && is_high_precision(p.b) && is_high_precision(p.sum) &&
         has_codec(p.codes) &&
         (codes.has(Granularity::Kind::group) || codes.has(Granularity::Kind::row)) &&
         view.attrs<QuantizeAttrs>().rounding == Rounding::near;
}
KernelSpec groups_spec(const NodeView& view) {
  const GroupParams p = group_params(view);
  return chosen_spec(p.adds ? KernelId::add_quantize : KernelId::quantize_groups, p);
}

// Blocks of several rows, and groups that are rounded otherwise.
bool blocks_apply(const NodeView& view) {
  return is_high_precision(view.in(QuantizeGroups::x).dtype) && has_codec(made_groups(view).dtype);
}
KernelSpec blocks_spec(const NodeView& view) {
  const auto& q = view.attrs<QuantizeAttrs>();
  BlockParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(QuantizeGroups::x));
  const TensorType& codes = made_groups(view);
  const ScaleTile tile = scale_tile(codes);
  p.block_rows = tile.rows;
  p.block_cols = tile.cols;
  p.target = static_cast<float>(q.target);
  p.x = view.in(QuantizeGroups::x).dtype;
  p.codes = codes.dtype;
  p.scales = codes.granularity.scale;
  p.source = q.source;
  p.rule = q.rule;
  p.rounding = q.rounding;
  return chosen_spec(KernelId::quantize_blocks, p);
}

bool fake_applies(const NodeView& view) {
  return is_high_precision(view.in(Unary::x).dtype) && is_high_precision(view.out(Unary::y).dtype);
}
KernelSpec fake_spec(const NodeView& view) {
  const auto& a = view.attrs<FakeQuantizeAttrs>();
  FakeQuantizeParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(Unary::x));
  p.group = a.group;
  p.target = static_cast<float>(a.target);
  p.x = view.in(Unary::x).dtype;
  p.y = view.out(Unary::y).dtype;
  p.format = a.dtype;
  p.power = a.power;
  return chosen_spec(KernelId::fake_quantize, p);
}

bool periodic_applies(const NodeView& view) {
  return view.in_is(PeriodicScale::amax, {Dtype::f32}) &&
         view.in_is(PeriodicScale::before, {Dtype::f32});
}
KernelSpec periodic_spec(const NodeView& view) {
  return chosen_spec(
      KernelId::periodic_scale,
      PeriodicScaleParams{.target = static_cast<float>(view.attrs<AmaxScaleAttrs>().target)});
}

bool dequantize_applies(const NodeView& view) {
  const Dtype scale = view.in(Dequantize::scale).dtype;
  return has_codec(view.in(Dequantize::q).dtype) &&
         !view.in(Dequantize::q).has(Granularity::Kind::run) &&
         (is_f32_or_bf16(scale) || scale == Dtype::e8m0) &&
         is_high_precision(view.out(Dequantize::x).dtype);
}
KernelSpec dequantize_spec(const NodeView& view) {
  DequantizeParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(Dequantize::q));
  const ScaleTile tile = scale_tile(view.in(Dequantize::q));
  p.group = tile.cols;
  p.block_rows = std::max<int64_t>(tile.rows, 1);
  p.codes = view.in(Dequantize::q).dtype;
  p.scales = view.in(Dequantize::scale).dtype;
  p.y = view.out(Dequantize::x).dtype;
  return chosen_spec(KernelId::dequantize, p);
}

const Binding kQuantizeBindings[] = {
    {{OpCode::amax, "reduce", amax_applies, amax_scratch}, amax_spec},
    {{OpCode::any_of, "reduce", always}, any_of_spec},
    {{.op = OpCode::quant_scale, .name = "scalar", .applies = scale_applies, .may_join = always},
     scale_spec},
    {{OpCode::delayed_scale, "scalar", scale_applies}, scale_spec},
    {{OpCode::quantize, "codes", quantize_applies}, quantize_spec},
    {{OpCode::quantize_both, "codes", quantize_applies}, quantize_spec},
    {{OpCode::amax_quantize, "codes", amax_quantize_applies, amax_scratch}, amax_quantize_spec},
    {{OpCode::quantize_groups, "groups", groups_apply}, groups_spec},
    {{OpCode::quantize_groups, "blocks", blocks_apply}, blocks_spec},
    {{OpCode::fake_quantize, "elements", fake_applies}, fake_spec},
    {{OpCode::periodic_scale, "scalar", periodic_applies}, periodic_spec},
    {{OpCode::add_quantize, "groups", groups_apply}, groups_spec},
    {{OpCode::dequantize, "codes", dequantize_applies}, dequantize_spec},
};

}  // namespace

std::span<const Binding> quantize_bindings() {
  return kQuantizeBindings;
}

}  // namespace octet::cuda
