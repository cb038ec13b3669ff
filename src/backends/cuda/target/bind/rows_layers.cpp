// Norms and activations, alone and with the quantizer of their result: one kernel for all.
#include "backends/cuda/params/rows.h"
#include "backends/cuda/target/bind/rows.h"
#include "ir/op_def.h"

namespace octet::cuda {
namespace {

// The op without its quantizer.
struct Plain {
  OpCode op;
  Attrs attrs;
  const QuantizeAttrs* q = nullptr;
  bool both = false;

  size_t n_operands() const { return static_cast<size_t>(op_def(op).max_operands); }
};

Plain plain_of(const NodeView& view) {
  const Attrs& attrs = view.node.attrs;
  if (const auto* a = std::get_if<NormQuantizeAttrs>(&attrs)) {
    const bool rms = view.node.op == OpCode::rms_norm_quantize;
    return {rms ? OpCode::rms_norm : OpCode::layer_norm, a->norm, &a->q, a->both};
  }
  if (const auto* a = std::get_if<GatedActQuantizeAttrs>(&attrs))
    return {OpCode::gated_act, a->act, &a->q, a->both};
  if (const auto* a = std::get_if<GeluQuantizeAttrs>(&attrs))
    return {OpCode::gelu, a->act, &a->q, a->both};
  return {view.node.op, attrs};
}

RowLayer layer_of(const Plain& plain) {
  switch (plain.op) {
    case OpCode::rms_norm:
      return RowLayer::rms_norm;
    case OpCode::layer_norm:
      return RowLayer::layer_norm;
    case OpCode::gated_act:
      return RowLayer::gated_silu;
    default:
      return std::get<GeluAttrs>(plain.attrs).kind == GeluKind::erf ? RowLayer::gelu_erf
                                                                    : RowLayer::gelu_tanh;
  }
}

bool layer_applies(const NodeView& view) {
  const Plain plain = plain_of(view);
  if (!operands_apply(view, plain.op, plain.attrs)) return false;
  if (plain.q == nullptr) return is_wide_or_half(view.out(0).dtype);
  for (size_t i = plain.n_operands(); i < plain.n_operands() + 4; ++i) {
    if (!view.in_is(i, {Dtype::f32})) return false;
  }
  return is_row_code(view.out(0).dtype);
}

CodesArg codes_of(const NodeView& view, const Plain& plain) {
  CodesArg codes;
  const size_t scale = plain.n_operands(), history = scale + 1;
  const auto last = static_cast<int8_t>(view.node.results.size() - 1);
  const bool given = view.has(scale);
  (plain.q->transposed ? codes.transposed_at : codes.rows_at) = 0;
  if (plain.both) codes.transposed_at = last;
  codes.given_at = place(view, scale);
  codes.scale_at = given ? kAbsent : int8_t{1};
  codes.flag_at = given ? kAbsent : int8_t{2};
  codes.history_at = place(view, history);
  if (view.has(history)) {
    codes.n_history = static_cast<int32_t>(view.in(history).n_elems());
    codes.next_history_at = static_cast<int8_t>(plain.both ? last - 1 : last);
  }
  codes.dtype = view.out(0).dtype;
  codes.target = static_cast<float>(plain.q->target);
  if (codes.transposed_at != kAbsent)
    codes.padded_rows = view.out(static_cast<size_t>(codes.transposed_at)).shape[1];
  return codes;
}

KernelId kernel_of(OpCode op) {
  switch (op) {
    case OpCode::rms_norm:
      return KernelId::rms_norm;
    case OpCode::rms_norm_quantize:
      return KernelId::rms_norm_quantize;
    case OpCode::layer_norm:
      return KernelId::layer_norm;
    case OpCode::layer_norm_quantize:
      return KernelId::layer_norm_quantize;
    case OpCode::gated_act:
      return KernelId::gated_act;
    case OpCode::gated_act_quantize:
      return KernelId::gated_act_quantize;
    case OpCode::gelu:
      return KernelId::gelu;
    default:
      return KernelId::gelu_quantize;
  }
}

KernelSpec layer_spec(const NodeView& view) {
  const Plain plain = plain_of(view);
  RowLayerParams p;
  p.layer = layer_of(plain);
  p.quantized = plain.q != nullptr;
  const auto stored = op_def(plain.op).stored;
  p.x = row_operand(view, stored[0], plain.attrs);
  if (plain.op == OpCode::gated_act) p.up = row_operand(view, stored[1], plain.attrs);
  std::tie(p.rows, p.cols) = matrix_of(view.in(0));
  if (const auto* norm = std::get_if<NormAttrs>(&plain.attrs)) {
    const bool centred = plain.op == OpCode::layer_norm;
    p.eps = static_cast<float>(norm->eps);
    p.weight = wide_operand(view, 1);
    if (centred) p.bias = wide_operand(view, 2);
    // Behind y, or behind the codes, their scale and flag; not where the scale is given.
    const bool kept = !p.quantized || !view.has(plain.n_operands());
    const int first = p.quantized ? 3 : 1;
    if (kept && centred) p.mean_at = static_cast<int8_t>(first);
    if (kept) p.rstd_at = static_cast<int8_t>(centred ? first + 1 : first);
    const size_t known = plain.n_operands() + 2;
    if (p.quantized) p.known_rstd_at = place(view, centred ? known + 1 : known);
    if (p.quantized && centred) p.known_mean_at = place(view, known);
  }
  if (p.quantized) {
    p.codes = codes_of(view, plain);
  } else {
    p.y = wide_result(view, 0);
  }
  return make_spec(kernel_of(view.node.op), p);
}

int64_t layer_scratch(const NodeView& view) {
  const Plain plain = plain_of(view);
  const bool norm = std::holds_alternative<NormAttrs>(plain.attrs);
  return plain.q == nullptr ? 0 : layer_scratch_bytes(norm ? rows_of(view.in(0)).rows : 0);
}

const Binding kBindings[] = {
    {OpCode::rms_norm, layer_applies, nullptr, layer_spec},
    {OpCode::rms_norm_quantize, layer_applies, layer_scratch, layer_spec},
    {OpCode::layer_norm, layer_applies, nullptr, layer_spec},
    {OpCode::layer_norm_quantize, layer_applies, layer_scratch, layer_spec},
    {OpCode::gated_act, layer_applies, nullptr, layer_spec},
    {OpCode::gated_act_quantize, layer_applies, layer_scratch, layer_spec},
    {OpCode::gelu, layer_applies, nullptr, layer_spec},
    {OpCode::gelu_quantize, layer_applies, layer_scratch, layer_spec},
};

}  // namespace

std::span<const Binding> row_layer_bindings() {
  return kBindings;
}

}  // namespace octet::cuda
