// Operands that an op reads otherwise, or reads too: codes in the place of what they are
// dequantized to, an addend, a moment in FP16.
#include <algorithm>

#include "ir/fixed_scale.h"
#include "ir/op_def.h"
#include "ir/ops/list.h"
#include "passes/lower/fold.h"

namespace octet {
namespace {

// Of sums that are rounded by themselves: a residual may be quantized from f32.
bool is_optional(const Form& sum, bool has_bias) {
  const auto* gemm = std::get_if<GemmAttrs>(&sum.attrs);
  const bool is_forward =
      gemm != nullptr && (sum.tag.role == Role::forward || gemm->role == GemmRole::forward);
  return is_forward || has_bias;
}

// The only store of what the update makes of its second moment, with the scale that it was read
// with.
const Node* stored_again(const Matcher& m, const Form& adamw, ValueId scale) {
  const ValueId next = adamw.results[AdamwStep::next_v];
  const Node* store = m.read_once(next) ? m.reader(next, OpCode::store_scaled) : nullptr;
  return store != nullptr && store->in(StoreScaled::scale) == scale ? store : nullptr;
}

}  // namespace

std::optional<Form> fold_load(const Matcher& m, const Form& form) {
  const bool is_gemm = form.op == OpCode::gemm;
  if (!op_def(form.op).saves && !is_gemm) return std::nullopt;
  Form loaded = form;
  std::optional<Granularity> by;  // of all
  for (const ScalePlace place : op_def(form.op).scales) {
    if (is_gemm && place.operand == Gemm::a) continue;
    const Node* dequantize = m.producer(form.operands[place.operand], OpCode::dequantize);
    if (dequantize == nullptr) return std::nullopt;
    const ValueId q = dequantize->in(Dequantize::q);
    const Granularity& own = m.type(q).granularity;
    const bool is_read_so =
        own.kind == Granularity::Kind::tensor || (m.type(q).in_row_groups() && !is_gemm);
    if (!is_read_so || own != by.value_or(own)) return std::nullopt;
    by = own;
    loaded.operands[place.operand] = q;
    loaded.operands[place.scale] = dequantize->in(Dequantize::scale);
  }
  if (is_gemm && !(m.read_once(form.operands[Gemm::b]) && m.takes(loaded))) return std::nullopt;
  return loaded;
}

// The second of two that are added takes the first.
std::optional<Form> fold_addend(const Matcher& m, const Form& form) {
  const SlotId slot = op_def(form.op).addend;
  if (slot == kNoSlot || form.operands[slot] != kNoValue) return std::nullopt;
  const ValueId y = form.results.front();
  if (!m.read_once(y)) return std::nullopt;
  const Node* sum = m.reader(y, OpCode::add);
  const bool has_bias = sum == nullptr && std::holds_alternative<GemmAttrs>(form.attrs);
  if (has_bias) sum = m.reader(y, OpCode::bias_add);
  if (sum == nullptr) return std::nullopt;
  const bool is_first = y == sum->in(Binary::a);
  const ValueId other = sum->in(is_first ? SlotId{Binary::b} : SlotId{Binary::a});
  if (m.type(y) != m.type(sum->out(Binary::y)) || (!has_bias && m.type(other) != m.type(y)))
    return std::nullopt;
  const auto too_early = [&](ValueId id) { return id != kNoValue && m.read_before(id, *sum); };
  if (std::any_of(form.results.begin() + 1, form.results.end(), too_early)) return std::nullopt;
  const Node* second = is_first && !has_bias ? m.producer(other) : nullptr;
  if (second != nullptr && fold_addend(m, m.form_of(*second))) return std::nullopt;
  Form result = form;
  result.stand_at(m.id(*sum));
  result.operands[slot] = other;
  result.results.front() = sum->out(Binary::y);
  if (is_optional(result, has_bias) && !m.takes(result)) return std::nullopt;
  return result;
}

std::optional<Form> fold_scaled_moment(const Matcher& m, const Form& form) {
  using S = AdamwStep;
  if (!std::holds_alternative<AdamwAttrs>(form.attrs)) return std::nullopt;
  const Node* wide = m.producer(form.operands[S::v], OpCode::rescale);
  if (wide == nullptr || !m.read_once(form.operands[S::v]) ||
      m.dtype(wide->in(Rescale::x)) != Dtype::fp16 || !is_quantized(m.dtype(form.operands[S::m])))
    return std::nullopt;
  const Node* store = stored_again(m, form, wide->in(Rescale::factor));
  Form result = form;
  auto& attrs = std::get<AdamwAttrs>(result.attrs);
  if (store == nullptr || attrs.stochastic_m || attrs.stochastic_v || attrs.stochastic_w)
    return std::nullopt;
  const auto& stored = std::get<StoreScaledAttrs>(store->attrs);
  if (!stored.keeps_positive || stored.first != attrs.first || stored.seed != attrs.seed ||
      stored.stream != stream_of_v(attrs.stream))
    return std::nullopt;
  attrs.stochastic_v = true;
  result.operands[S::v] = wide->in(Rescale::x);
  result.operands[S::v_meta] = wide->in(Rescale::factor);
  result.results[S::next_v] = store->out(StoreScaled::q);
  result.consumed = {m.id(*wide), m.id(*store)};
  return result;
}

}  // namespace octet
