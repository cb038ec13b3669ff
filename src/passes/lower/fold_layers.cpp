// Further operands and results of a norm or activation that quantizes its result.
#include <algorithm>

#include "ir/ops/quantize_layers.h"
#include "passes/lower/fold.h"

namespace octet {
namespace {

// True if the norm of `form` is the same of the same x; weights and quantizers may differ.
bool same_norm(const Node& a, const Form& form) {
  const ScalePlace x = op_def(form.op).scales[0];
  return a.op == form.op && a.in(x.operand) == form.operands[x.operand] &&
         a.in(x.scale) == form.operands[x.scale] && split(a.attrs).layer == split(form.attrs).layer;
}

// True if a node behind `node` reads the value, or there is none: it is kept until then anyway.
bool is_kept_behind(const Matcher& m, ValueId value, NodeId node) {
  if (value == kNoValue) return true;
  const auto readers = m.readers(value);
  return std::ranges::any_of(readers, [&](const Node* r) { return m.id(*r) > node; });
}

}  // namespace

std::optional<Form> fold_known_statistics(const Matcher& m, const Form& form) {
  const OpDef& op = op_def(form.op);
  const NormSlots& at = op.norm;
  const bool wants = quantized_layer(form.op) != nullptr && at.known_rstd != kNoSlot &&
                     form.operands[op.store.given_scale] != kNoValue &&
                     form.operands[at.known_rstd] == kNoValue;
  if (!wants) return std::nullopt;
  for (const Node* before : m.readers(form.operands[op.scales[0].operand])) {
    if (m.id(*before) >= form.last || !same_norm(*before, form)) continue;
    const ValueId mean = before->out(at.mean), rstd = before->out(at.rstd);
    const bool is_kept = rstd != kNoValue && is_kept_behind(m, rstd, form.last) &&
                         is_kept_behind(m, mean, form.last);
    if (!is_kept) continue;
    Form result = form;
    result.operands[at.known_rstd] = rstd;
    if (mean != kNoValue) result.operands[at.known_mean] = mean;
    for (const SlotId slot : {at.mean, at.rstd}) {  // its own are gone
      if (slot < result.results.size()) result.results[slot] = kNoValue;
    }
    return result;
  }
  return std::nullopt;
}

std::optional<Form> fold_kept_operands(const Matcher& m, const Form& form) {
  const OpDef& op = op_def(form.op);
  if (op.kept == kNoSlot) return std::nullopt;
  QuantizedLayerAttrs attrs = split(form.attrs);
  Form result = form;
  result.results.resize(op.kept, kNoValue);
  for (const ScalePlace place : op.scales) {
    const ValueId x = form.operands[place.operand];
    const Node* groups = m.reader(x, OpCode::quantize_groups);
    if (groups == nullptr || groups->tag.role != form.tag.role) return std::nullopt;
    const auto& q = std::get<QuantizeAttrs>(groups->attrs);
    const TensorType& kept = m.type(groups->out(QuantizeGroups::q));
    const bool is_first = attrs.kept_target == 0;
    const bool fits =
        q.has_default_scaling() && kept.in_row_groups() &&
        (is_first || (attrs.kept_target == q.target && kept == m.type(result.results[op.kept])));
    if (!fits) return std::nullopt;
    attrs.kept_target = q.target;
    result.consumed.push_back(m.id(*groups));
    result.results.insert(result.results.end(), groups->results.begin(), groups->results.end());
  }
  result.attrs = join(attrs);
  if (!m.takes(result)) return std::nullopt;
  return result;
}

}  // namespace octet
