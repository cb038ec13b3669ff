// Gradients of norms and activations, rotary embedding, biases; rows_layers.cpp has the layers.
#include "backends/cuda/target/bind/rows.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "ir/ops/quantize_layers.h"
#include "ir/ops/rope.h"

namespace octet::cuda {
namespace {

bool results_are_high_precision(const NodeView& view) {
  for (size_t i = 0; i < own_results(view); ++i) {
    if (view.gives(i) && !is_high_precision(view.out(i).dtype)) return false;
  }
  return true;
}

bool gradient_applies(const NodeView& view) {
  return operands_apply(view, view.node.op) && results_are_high_precision(view);
}

const NormSlots& norm_of(const NodeView& view) {
  return op_def(view.node.op).norm;
}

// mean and rstd are f32.
bool norm_grad_applies(const NodeView& view) {
  return gradient_applies(view) && view.in_is(norm_of(view).rstd, {Dtype::f32}) &&
         view.in_is(norm_of(view).mean, {Dtype::f32});
}

int64_t own_amax_scratch(const NodeView& view) {
  return emits_amax(view.node.attrs) ? amax_arg_scratch_bytes() : 0;
}

int64_t norm_grad_scratch(const NodeView& view) {
  const int64_t maxima = own_amax_scratch(view);
  if (!view.has(norm_of(view).weight)) return maxima;
  const auto [rows, cols] = matrix_of(view.in(RmsNormGrad::x));
  return maxima + norm_grad_scratch_bytes(rows, cols, op_def(view.node.op).is_centred() ? 2 : 1);
}

NormGradParams norm_grad_params(const NodeView& view) {
  const NormSlots& at = norm_of(view);
  NormGradParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(RmsNormGrad::x));
  p.layer = row_layer(view.node.op, view.node.attrs);
  p.mean_at = place(view, at.mean);
  p.rstd_at = place(view, at.rstd);
  p.dy = row_operand(view, RmsNormGrad::dy);
  p.x = row_operand(view, op_def(view.node.op).scales[0]);
  p.weight = unquantized_operand(view, at.weight);
  p.addend = unquantized_operand(view, op_def(view.node.op).addend);
  p.dx = unquantized_result(view, RmsNormGrad::dx);
  p.dw = unquantized_result(view, RmsNormGrad::dweight);
  p.db = unquantized_result(view, at.dbias);
  p.amax = amax_result(view);
  return p;
}
template <bool kGeneric>
KernelSpec norm_grad_spec(const NodeView& view) {
  NormGradParams p = norm_grad_params(view);
  p.generic = kGeneric;
  return chosen_spec(KernelId::norm_grad, p);
}
RowKind norm_grad_kind(const NodeView& view) {
  return row_kind(form_of(norm_grad_params(view)));
}

ActGradParams act_grad_params(const NodeView& view) {
  const auto places = op_def(view.node.op).scales;
  ActGradParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(GatedActGrad::gate));
  p.dy = row_operand(view, GatedActGrad::dy);
  p.x = row_operand(view, places[0]);
  p.layer = row_layer(view.node.op, view.node.attrs);
  if (places.size() > 1) p.up = row_operand(view, places[1]);
  p.first = unquantized_result(view, GatedActGrad::dgate);
  p.second = unquantized_result(view, GatedActGrad::dup);
  p.amax = amax_result(view);
  return p;
}
RowKind act_grad_kind(const NodeView& view) {
  return row_kind(form_of(act_grad_params(view)));
}
template <bool kGeneric>
KernelSpec act_grad_spec(const NodeView& view) {
  ActGradParams p = act_grad_params(view);
  p.generic = kGeneric;
  return chosen_spec(KernelId::activation_grad, p);
}

// Both of bf16, or both of codes in groups, of sixteens, counted in 32 bits; codes of FP8.
bool grad_codes_apply(const NodeView& view) {
  using Op = GatedActGradQuantize;
  const auto& attrs = view.attrs<GatedActQuantizeAttrs>();
  if (!attrs.both || !attrs.q.has_default_scaling() || attrs.q.limit > 0 ||
      !is_fp8(view.out(Op::dgate).dtype))
    return false;
  if (!operands_apply(view, OpCode::gated_act_grad)) return false;
  const auto is_read_so = [&](ScalePlace place) {
    const RowOperand x = row_operand(view, place);
    if (x.group == 0) return x.dtype == Dtype::bf16;
    return (x.group == 16 || x.group == kOneGroup) && x.dtype == Dtype::e4m3 &&
           x.scales == Dtype::bf16;
  };
  if (!view.in_is(Op::dy, {Dtype::bf16}) ||
      !std::ranges::all_of(op_def(view.node.op).scales, is_read_so))
    return false;
  for (const SlotId slot : {Op::given_scale, Op::history}) {
    if (!view.in_is(slot, {Dtype::f32})) return false;
  }
  const auto [rows, cols] = matrix_of(view.in(Op::dy));
  constexpr int64_t kMax = int64_t{1} << 31;
  return rows > 0 && cols > 0 && cols % 16 == 0 && rows < kMax / 2 && cols < kMax / 2 &&
         (rows + 256) / 16 < kMax / (cols + 256);
}

KernelSpec grad_codes_spec(const NodeView& view) {
  using Op = GatedActGradQuantize;
  const auto& attrs = view.attrs<GatedActQuantizeAttrs>();
  const auto places = op_def(view.node.op).scales;
  GradCodesParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(Op::dy));
  p.dy = row_operand(view, Op::dy);
  p.x = row_operand(view, places[0]);
  p.up = row_operand(view, places[1]);
  p.second_rows_at = Op::dup;
  p.second_transposed_at = Op::dup_transposed;
  CodesArg& codes = p.codes;
  codes = codes_with_scale(view, attrs.q);
  codes.rows_at = Op::dgate;
  codes.transposed_at = Op::dgate_transposed;
  codes.padded_rows = view.out(Op::dgate_transposed).stored_shape()[1];
  return chosen_spec(KernelId::gated_act_grad_quantize, p);
}

int64_t grad_codes_scratch(const NodeView&) {
  return layer_scratch_bytes(0);
}

// Rows of texts that are decoded side by side; more fill the device by themselves.
constexpr int64_t kFewRopeRows = 128;

bool rope_applies(const NodeView& view) {
  return is_high_precision(view.in(Rope::x).dtype) && view.in_is(Rope::positions, {Dtype::i32}) &&
         is_high_precision(view.out(Rope::y).dtype) &&
         view.attrs<RopeAttrs>().head_dim <= 2 * kMaxRopePairs;
}

KernelSpec rope_spec(const NodeView& view) {
  const auto& attrs = view.attrs<RopeAttrs>();
  RopeParams p;
  p.rows = view.in(Rope::x).shape[0];
  p.heads = static_cast<int32_t>(attrs.heads);
  p.head_dim = static_cast<int32_t>(attrs.head_dim);
  p.inverse = attrs.inverse;
  p.amax = amax_result(view);
  p.x = unquantized_operand(view, Rope::x);
  p.y = unquantized_result(view, Rope::y);
  std::vector<int64_t> bits;
  for (const double f : rope_frequencies(attrs)) bits.push_back(std::bit_cast<int64_t>(f));
  return chosen_spec(KernelId::rope, p, bits);
}

bool rope_may_join(const NodeView& view) {
  return view.in(Rope::x).shape[0] <= kFewRopeRows && !emits_amax(view.node.attrs);
}

bool bias_applies(const NodeView& view) {
  return is_high_precision(view.in(BiasAdd::x).dtype) && results_are_high_precision(view) &&
         view.in_is(BiasAdd::bias, {Dtype::f32, Dtype::bf16, Dtype::fp16});
}

template <KernelId kKernel>
KernelSpec bias_spec(const NodeView& view) {
  BiasParams p;
  std::tie(p.rows, p.cols) = matrix_of(view.in(BiasAdd::x));
  p.x = unquantized_operand(view, BiasAdd::x);
  p.bias = unquantized_operand(view, BiasAdd::bias);
  p.y = unquantized_result(view, BiasAdd::y);
  return chosen_spec(kKernel, p);
}

int64_t column_sum_scratch(const NodeView& view) {
  return column_sum_scratch_bytes(std::get<1>(matrix_of(view.in(Unary::x))));
}

const Binding kRest[] = {
    {{OpCode::gated_act_grad_quantize, "codes", grad_codes_apply, grad_codes_scratch},
     grad_codes_spec},
    {{.op = OpCode::rope,
      .name = "rows",
      .applies = rope_applies,
      .scratch = own_amax_scratch,
      .may_join = rope_may_join},
     rope_spec},
    {{OpCode::bias_add, "rows", bias_applies}, bias_spec<KernelId::bias_add>},
    {{OpCode::column_sum, "rows", bias_applies, column_sum_scratch},
     bias_spec<KernelId::column_sum>},
};

}  // namespace

bool operands_apply(const NodeView& view, OpCode layer) {
  const OpDef& def = op_def(layer);
  const bool is_norm = std::holds_alternative<NormAttrs>(def.attrs());
  for (const ScalePlace place : def.scales) {
    const TensorType& type = view.in(place.operand);
    const bool has_groups =
        type.has(Granularity::Kind::group) && is_high_precision(type.granularity.scale);
    const bool is_read_so =
        !type.is_scaled() || has_groups || (type.has(Granularity::Kind::tensor) && !is_norm);
    if (!is_read_so || type.granularity != view.in(def.scales[0].operand).granularity) return false;
  }
  for (size_t i = 0; i < def.operands.size(); ++i) {
    if (!view.has(i) || std::ranges::find(def.scales, i, &ScalePlace::scale) != def.scales.end())
      continue;
    const TensorType& type = view.in(i);
    if (type.is_scaled() ? !is_gemm_operand(type.dtype) : !is_high_precision(type.dtype))
      return false;
  }
  return true;
}

std::span<const Binding> row_bindings() {
  static const std::vector<Binding> all = [] {
    std::vector<Binding> rows(std::begin(kRest), std::end(kRest));
    for (int i = 0; i < kOpCount; ++i) {
      const auto op = static_cast<OpCode>(i);
      if (is_norm_gradient(op))
        add_rows<norm_grad_applies, norm_grad_kind>(rows, op, norm_grad_scratch,
                                                    norm_grad_spec<false>, norm_grad_spec<true>);
      if (is_activation_gradient(op))
        add_rows<gradient_applies, act_grad_kind>(rows, op, own_amax_scratch, act_grad_spec<false>,
                                                  act_grad_spec<true>);
      add_layer_rows(rows, op);
    }
    return rows;
  }();
  return all;
}

}  // namespace octet::cuda
