// A layer and the per-tensor quantizer of its result become one op.
#include <fmt/format.h>

#include <algorithm>

#include "ir/ops/quantize_layers.h"
#include "passes/lower/fuse_rules.h"

namespace octet {
namespace {

// How a high-precision value is quantized per tensor: with a scale of its own, or one that is
// given.
struct TensorQuantizer {
  const Node* quantize = nullptr;  // or quantize_both
  const Node* amax = nullptr;      // with its own scale: amax and quant_scale or delayed_scale too
  const Node* scale = nullptr;
  bool both() const { return quantize->out(QuantizeBoth::q_transposed) != kNoValue; }
  const QuantizeAttrs& attrs() const { return std::get<QuantizeAttrs>(quantize->attrs); }
};

// Whether the scale of `found` is made from its amax, which nothing else reads.
bool makes_own_scale(const Matcher& m, const TensorQuantizer& found) {
  const ValueId amax = found.amax->out(AmaxOp::amax);
  return found.scale != nullptr && found.scale->in(QuantScale::amax) == amax && m.read_once(amax);
}

std::optional<TensorQuantizer> tensor_quantizer(const Matcher& m, ValueId y, std::string& why) {
  TensorQuantizer found;
  if (m.is_graph_output(y)) return why = "handed out", std::nullopt;
  for (const Node* node : m.readers(y)) {
    if (op_def(node->op).is_quantizer && found.quantize == nullptr) {
      found.quantize = node;
      if (!found.attrs().has_default_scaling())
        return why = "its scale or rounding is none of a fused op's", std::nullopt;
    } else if (node->op == OpCode::amax && found.amax == nullptr && node->operands.size() == 1) {
      found.amax = node;
    } else {
      why = fmt::format("read by {} too", op_def(node->op).name);
      return std::nullopt;
    }
  }
  if (found.amax == nullptr) return found;
  found.scale = scale_maker(m, *found.quantize);
  if (!makes_own_scale(m, found))
    return why = "its scale is not from its own amax alone", std::nullopt;
  return found;
}

// Behind the layer's own operands, where the fused op has its scale: the statistics, where they are
// known.
ValueIds known_statistics(const QuantizedLayer& op, const Node& layer) {
  if (layer.operands.size() <= op.given_scale) return {};
  return {layer.operands.begin() + op.given_scale, layer.operands.end()};
}

// The layer's operands in its own slots, and the scale or the history.
ValueIds fused_operands(const QuantizedLayer& op, const Node& layer, const TensorQuantizer& q) {
  const ValueIds known = known_statistics(op, layer);
  ValueIds operands = layer.operands;
  operands.resize(std::min<size_t>(operands.size(), op.given_scale));
  operands.resize(op_def(op.op).operands.size(), kNoValue);
  if (!known.empty()) operands[op.known_rstd] = known.back();
  if (known.size() > 1) operands[op.known_mean] = known.front();
  if (q.amax == nullptr) operands[op.given_scale] = q.quantize->in(Quantize::scale);
  if (q.amax != nullptr) operands[op.history] = q.scale->in(DelayedScale::history);
  return operands;
}

// The old values by the slots of the fused op's results.
ValueIds replaced_values(const QuantizedLayer& op, const Node& layer, const TensorQuantizer& q) {
  ValueIds values(op_def(op.op).results.size(), kNoValue);
  values[kLayerQ] = q.quantize->out(Quantize::q);
  std::copy(layer.results.begin() + 1, layer.results.end(), values.begin() + kLayerNonfinite + 1);
  if (q.amax != nullptr) {
    values[kLayerScale] = q.scale->out(QuantScale::scale);
    values[kLayerNonfinite] = q.amax->out(AmaxOp::nonfinite);
    values[op.next_history] = q.scale->out(DelayedScale::next_history);
  }
  if (q.both()) values[op.q_transposed] = q.quantize->out(QuantizeBoth::q_transposed);
  return values;
}

// Whether two nodes quantize the same norm of the same x; weights and quantizers may differ.
bool same_norm(const QuantizedLayer& op, const Node& a, const Node& b) {
  const ScalePlace x = op_def(op.layer).scales[0];
  return a.op == b.op && a.in(x.operand) == b.in(x.operand) && a.in(x.scale) == b.in(x.scale) &&
         split(a.attrs).layer == split(b.attrs).layer;
}

// Whether a node behind `node` reads the value: it is kept until then anyway.
bool is_read_behind(const Matcher& m, ValueId value, const Node& node) {
  const auto readers = m.readers(value);
  return std::any_of(readers.begin(), readers.end(), [&](const Node* r) { return r > &node; });
}

}  // namespace

std::optional<Match> match_one_layout(const Matcher& m, const Node& node) {
  const ValueId q = node.out(QuantizeBoth::q), q_t = node.out(QuantizeBoth::q_transposed);
  const auto is_read = [&](ValueId id) { return !m.readers(id).empty() || m.is_graph_output(id); };
  if (is_read(q) == is_read(q_t)) return std::nullopt;
  return Match{.last = m.id(node),
               .op = OpCode::quantize,
               .attrs = node.attrs,
               .operands = node.operands,
               .replaces = {is_read(q_t) ? q_t : q},
               .tag = node.tag};
}

std::optional<Match> match_layer_quantize(const Matcher& m, const Node& node) {
  const QuantizedLayer* op = with_quantizer(node.op);
  if (op == nullptr) return std::nullopt;
  const ValueId y = node.results.front();
  const bool concerned =
      (m.reader(y, OpCode::quantize) != nullptr || m.reader(y, OpCode::quantize_both) != nullptr);
  // An operand that GEMMs read in blocks too is rounded before it is quantized.
  if (!concerned || m.reader(y, OpCode::quantize_groups) != nullptr) return std::nullopt;
  std::string why;
  const auto q = tensor_quantizer(m, y, why);
  if (!q) {
    m.near_miss(op_def(op->op).name, node, why);
    return std::nullopt;
  }
  if (m.type(y).dtype == Dtype::bf16 || m.type(y).dtype == Dtype::fp16) return std::nullopt;
  const bool given = q->amax == nullptr;
  if (!given && !known_statistics(*op, node).empty()) return std::nullopt;
  Match match{.last = m.id(given ? *q->quantize : node),
              .op = op->op,
              .attrs = join({node.attrs, q->attrs(), q->both()}),
              .operands = fused_operands(*op, node, *q),
              .replaces = replaced_values(*op, node, *q),
              .tag = node.tag,
              .consumed = {}};
  if (given) {
    match.consumed = {m.id(node)};
  } else {
    match.consumed = {m.id(*q->quantize), m.id(*q->scale), m.id(*q->amax)};
  }
  return match;
}

std::optional<Match> match_known_statistics(const Matcher& m, const Node& node) {
  const QuantizedLayer* op = quantized_layer(node.op);
  const bool wants = op != nullptr && op->known_rstd != kNoSlot &&
                     node.in(op->given_scale) != kNoValue && node.in(op->known_rstd) == kNoValue;
  if (!wants) return std::nullopt;
  const ValueId x = node.in(op_def(op->layer).scales[0].operand);
  for (const Node* before : m.readers(x)) {
    if (before >= &node || !same_norm(*op, *before, node)) continue;
    if (before->in(op->known_rstd) != kNoValue) continue;
    const ValueId mean = before->out(op->mean), rstd = before->out(op->rstd);
    const bool kept =
        is_read_behind(m, rstd, node) && (mean == kNoValue || is_read_behind(m, mean, node));
    if (!kept) continue;
    ValueIds operands = all_operands(node);
    operands[op->known_rstd] = rstd;
    if (mean != kNoValue) operands[op->known_mean] = mean;
    ValueIds replaced = node.results;  // its own statistics are gone
    for (const SlotId slot : {op->mean, op->rstd}) {
      if (slot < replaced.size()) replaced[slot] = kNoValue;
    }
    return Match{.last = m.id(node),
                 .op = node.op,
                 .attrs = node.attrs,
                 .operands = operands,
                 .replaces = replaced,
                 .tag = node.tag};
  }
  return std::nullopt;
}

std::optional<Match> match_kept_operands(const Matcher& m, const Node& node) {
  if (!m.options().keeps_operands) return std::nullopt;
  const QuantizedLayer* op = quantized_layer(node.op);
  if (op == nullptr || op->kept == kNoSlot) return std::nullopt;
  QuantizedLayerAttrs attrs = split(node.attrs);
  if (reads_quantized(m.graph(), node) || attrs.kept_target > 0 || attrs.both ||
      m.type(node.out(kLayerQ)).layout.transposed)
    return std::nullopt;
  Match match{.last = m.id(node),
              .op = node.op,
              .attrs = {},
              .operands = node.operands,
              .replaces = node.results,
              .tag = node.tag};
  match.replaces.resize(op->kept, kNoValue);
  for (const ScalePlace place : op_def(op->layer).scales) {
    const Node* groups = m.reader(node.in(place.operand), OpCode::quantize_groups);
    if (groups == nullptr || groups->tag.role != node.tag.role) return std::nullopt;
    const auto& q = std::get<QuantizeAttrs>(groups->attrs);
    const TensorType& kept = m.type(groups->out(QuantizeGroups::q));
    const bool is_first = attrs.kept_target == 0;
    const bool fits =
        q.has_default_scaling() && kept.in_row_groups() &&
        (is_first || (attrs.kept_target == q.target && kept == m.type(match.replaces[op->kept])));
    if (!fits) return std::nullopt;
    attrs.kept_target = q.target;
    match.consumed.push_back(m.id(*groups));
    match.replaces.push_back(groups->out(QuantizeGroups::q));
    match.replaces.push_back(groups->out(QuantizeGroups::scale));
  }
  match.attrs = join(attrs);
  return match;
}

}  // namespace octet
