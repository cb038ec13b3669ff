// A layer and the per-tensor quantizer of its result become one op.
#include <fmt/format.h>

#include <algorithm>

#include "ir/op_def.h"
#include "ir/print.h"
#include "passes/lower/fuse_rules.h"

namespace octet {
namespace {

// The layer's op with the quantizer in it; nothing where the op has no such form.
std::optional<OpCode> quantizing_op(OpCode layer) {
  switch (layer) {
    case OpCode::rms_norm:
      return OpCode::rms_norm_quantize;
    case OpCode::layer_norm:
      return OpCode::layer_norm_quantize;
    case OpCode::gated_act:
      return OpCode::gated_act_quantize;
    case OpCode::gelu:
      return OpCode::gelu_quantize;
    default:
      return std::nullopt;
  }
}

// How a wide value is quantized per tensor: with a scale of its own, or one that is given.
struct TensorQuantizer {
  const Node* quantize = nullptr;  // or quantize_both
  const Node* amax = nullptr;      // with its own scale: amax and quant_scale or delayed_scale too
  const Node* scale = nullptr;
  bool both() const { return quantize->op == OpCode::quantize_both; }
  const QuantizeAttrs& attrs() const { return std::get<QuantizeAttrs>(quantize->attrs); }
};

bool is_quantize(const Node& node) {
  return node.op == OpCode::quantize || node.op == OpCode::quantize_both;
}

// Whether the scale of `found` is made from its amax, which nothing else reads.
bool makes_own_scale(const Matcher& m, const TensorQuantizer& found) {
  const ValueId amax = found.amax->results[0];
  return found.scale != nullptr && found.scale->operands[0] == amax && m.read_once(amax);
}

std::optional<TensorQuantizer> tensor_quantizer(const Matcher& m, ValueId y, std::string& why) {
  TensorQuantizer found;
  if (m.handed_out(y)) return why = "handed out", std::nullopt;
  for (const Node* node : m.readers(y)) {
    if (is_quantize(*node) && found.quantize == nullptr) {
      found.quantize = node;
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

Attrs fused_attrs(const Node& layer, const TensorQuantizer& q) {
  if (const auto* norm = std::get_if<NormAttrs>(&layer.attrs))
    return NormQuantizeAttrs{.norm = *norm, .q = q.attrs(), .both = q.both()};
  if (const auto* act = std::get_if<GatedActAttrs>(&layer.attrs))
    return GatedActQuantizeAttrs{.act = *act, .q = q.attrs(), .both = q.both()};
  return GeluQuantizeAttrs{
      .act = std::get<GeluAttrs>(layer.attrs), .q = q.attrs(), .both = q.both()};
}

// The layer's operands in its own places, then the scale and the history.
std::vector<ValueId> fused_operands(const Node& layer, const TensorQuantizer& q) {
  std::vector<ValueId> operands = layer.operands;
  operands.resize(static_cast<size_t>(op_def(layer.op).max_operands), kNoValue);
  operands.push_back(q.amax == nullptr ? q.quantize->operands[1] : kNoValue);
  const bool delayed = q.amax != nullptr && q.scale->op == OpCode::delayed_scale;
  operands.push_back(delayed ? q.scale->operands[1] : kNoValue);
  while (operands.back() == kNoValue) operands.pop_back();
  return operands;
}

// The old values in the order of the fused op's results (ir/ops/list.h).
std::vector<ValueId> replaced_values(const Node& layer, const TensorQuantizer& q) {
  std::vector<ValueId> values = {q.quantize->results[0]};
  if (q.amax != nullptr) {
    values.push_back(q.scale->results[0]);
    values.push_back(q.amax->results[1]);
    values.insert(values.end(), layer.results.begin() + 1, layer.results.end());
    values.insert(values.end(), q.scale->results.begin() + 1, q.scale->results.end());
  }
  if (q.both()) values.push_back(q.quantize->results[1]);
  return values;
}

bool statistics_are_read(const Matcher& m, const Node& layer) {
  for (size_t i = 1; i < layer.results.size(); ++i) {
    if (!m.readers(layer.results[i]).empty() || m.handed_out(layer.results[i])) return true;
  }
  return false;
}

bool is_norm_quantize(const Node& node) {
  return node.op == OpCode::rms_norm_quantize || node.op == OpCode::layer_norm_quantize;
}

// Whether two nodes quantize the same norm of the same x; weights and quantizers may differ.
bool same_norm(const Node& a, const Node& b) {
  const OpDef& layer =
      op_def(a.op == OpCode::rms_norm_quantize ? OpCode::rms_norm : OpCode::layer_norm);
  const auto operand = [](const Node& node, int i) {
    const auto at = static_cast<size_t>(i);
    return at < node.operands.size() ? node.operands[at] : kNoValue;
  };
  const StoredPlace& x = layer.stored[0];
  return a.op == b.op && operand(a, x.operand) == operand(b, x.operand) &&
         operand(a, x.scales) == operand(b, x.scales) &&
         std::get<NormQuantizeAttrs>(a.attrs).norm == std::get<NormQuantizeAttrs>(b.attrs).norm;
}

// Whether a node behind `node` reads the value: it is kept until then anyway.
bool is_read_behind(const Matcher& m, ValueId value, const Node& node) {
  const auto readers = m.readers(value);
  return std::any_of(readers.begin(), readers.end(), [&](const Node* r) { return r > &node; });
}

}  // namespace

std::optional<Match> match_one_layout(const Matcher& m, const Node& node,
                                      std::vector<std::string>&) {
  if (node.op != OpCode::quantize_both) return std::nullopt;
  const auto is_read = [&](size_t i) {
    return !m.readers(node.results[i]).empty() || m.handed_out(node.results[i]);
  };
  if (is_read(0) == is_read(1)) return std::nullopt;
  QuantizeAttrs attrs = std::get<QuantizeAttrs>(node.attrs);
  attrs.transposed = is_read(1);
  return Match{.last = &node,
               .op = OpCode::quantize,
               .attrs = attrs,
               .operands = node.operands,
               .replaces = {node.results[attrs.transposed ? 1 : 0]},
               .dtypes = {},
               .tag = node.tag};
}

std::optional<Match> match_layer_quantize(const Matcher& m, const Node& node,
                                          std::vector<std::string>& near_misses) {
  const auto op = quantizing_op(node.op);
  const ValueId y = node.results[0];
  const bool concerned = op && (m.reader(y, OpCode::quantize) != nullptr ||
                                m.reader(y, OpCode::quantize_both) != nullptr);
  if (!concerned) return std::nullopt;
  std::string why = "its statistics are read";
  const auto q = tensor_quantizer(m, y, why);
  const bool given = q && q->amax == nullptr;
  if (!q || (given && statistics_are_read(m, node))) {
    near_misses.push_back(fmt::format("{}: {}: {}", op_def(*op).name, print(m.graph(), node), why));
    return std::nullopt;
  }
  Match match{.last = given ? q->quantize : &node,
              .op = *op,
              .attrs = fused_attrs(node, *q),
              .operands = fused_operands(node, *q),
              .replaces = replaced_values(node, *q),
              .dtypes = {},
              .tag = node.tag,
              .consumed = {}};
  if (given) {
    match.consumed = {&node};
  } else {
    match.consumed = {q->quantize, q->scale, q->amax};
  }
  match.dtypes.assign(match.replaces.size(), Dtype::f32);
  return match;
}

std::optional<Match> match_known_statistics(const Matcher& m, const Node& node,
                                            std::vector<std::string>&) {
  if (!is_norm_quantize(node)) return std::nullopt;
  const size_t n_statistics = node.op == OpCode::layer_norm_quantize ? 2 : 1;
  // Behind the scale and the history.
  const size_t first = static_cast<size_t>(op_def(node.op).max_operands) - n_statistics;
  if (node.operands.size() != first - 1) return std::nullopt;  // without a scale, or as a result
  for (const Node* before : m.readers(node.operands[0])) {
    if (before >= &node || !same_norm(*before, node)) continue;
    const bool has_scale =
        before->operands.size() >= first - 1 && before->operands[first - 2] != kNoValue;
    if (has_scale) continue;  // and no statistics
    // Behind the codes, their scale and flag.
    const auto statistics = before->results.begin() + 3;
    const auto kept = [&](ValueId value) { return is_read_behind(m, value, node); };
    const auto end = statistics + static_cast<std::ptrdiff_t>(n_statistics);
    if (!std::all_of(statistics, end, kept)) continue;
    std::vector<ValueId> operands = node.operands;
    operands.resize(first, kNoValue);
    operands.insert(operands.end(), statistics, end);
    return Match{.last = &node,
                 .op = node.op,
                 .attrs = node.attrs,
                 .operands = operands,
                 .replaces = node.results,
                 .dtypes = std::vector<Dtype>(node.results.size(), Dtype::f32),
                 .tag = node.tag};
  }
  return std::nullopt;
}

}  // namespace octet
