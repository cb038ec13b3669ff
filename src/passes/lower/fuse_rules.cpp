#include "passes/lower/fuse_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/op_def.h"
#include "ir/print.h"

namespace octet {
namespace {

constexpr std::array kRules = {
    FuseRule{"stored_operands", match_stored_operands},
    FuseRule{"add_quantize", match_add_quantize},
    FuseRule{"norm_quantize", match_norm_quantize},
    FuseRule{"gated_quantize", match_gated_quantize},
    FuseRule{"gemm_accumulate", match_gemm_accumulate},
};

// (operand, where its scales go) of the ops that read stored forms.
struct StoredPlaces {
  std::vector<std::pair<size_t, size_t>> places;
};

StoredPlaces stored_places(OpCode op) {
  switch (op) {
    case OpCode::rms_norm:
      return {{{0, 2}}};
    case OpCode::rms_norm_grad:
      return {{{1, 4}}};
    case OpCode::layer_norm:
      return {{{0, 3}}};
    case OpCode::layer_norm_grad:
      return {{{1, 5}}};
    case OpCode::gated_act:
      return {{{0, 2}, {1, 3}}};
    case OpCode::gated_act_grad:
      return {{{1, 3}, {2, 4}}};
    case OpCode::gelu:
      return {{{0, 1}}};
    case OpCode::gelu_grad:
      return {{{1, 2}}};
    default:
      return {};
  }
}

Attrs with_group(const Attrs& attrs, int64_t group) {
  Attrs changed = attrs;
  if (auto* norm = std::get_if<NormAttrs>(&changed)) norm->group = group;
  if (auto* act = std::get_if<GatedActAttrs>(&changed)) act->group = group;
  if (auto* gelu = std::get_if<GeluAttrs>(&changed)) gelu->group = group;
  return changed;
}

std::vector<Dtype> result_dtypes(const Matcher& m, const Node& node) {
  std::vector<Dtype> dtypes;
  for (const ValueId id : node.results) dtypes.push_back(m.dtype(id));
  return dtypes;
}

ValueId operand_or_none(const Node& node, size_t i) {
  return i < node.operands.size() ? node.operands[i] : kNoValue;
}

std::vector<ValueId> trimmed(std::vector<ValueId> operands) {
  while (!operands.empty() && operands.back() == kNoValue) operands.pop_back();
  return operands;
}

// How a wide value is quantized per tensor: with a scale of its own, or one that is given.
struct TensorQuantizer {
  const Node* quantize = nullptr;
  const Node* amax = nullptr;  // with its own scale: amax and quant_scale too
  const Node* scale = nullptr;
};

std::optional<TensorQuantizer> tensor_quantizer(const Matcher& m, ValueId y, std::string& why) {
  TensorQuantizer found;
  if (m.handed_out(y)) return why = "handed out", std::nullopt;
  const auto readers = m.readers(y);
  for (const Node* node : readers) {
    if (node->op == OpCode::quantize && found.quantize == nullptr) {
      found.quantize = node;
    } else if (node->op == OpCode::amax && found.amax == nullptr && node->operands.size() == 1) {
      found.amax = node;
    } else {
      why = fmt::format("read by {} too", op_def(node->op).name);
      return std::nullopt;
    }
  }
  if (found.quantize == nullptr) return why = "no quantize reads it", std::nullopt;
  if (found.amax == nullptr) return found;
  found.scale = m.producer(found.quantize->operands[1]);
  const bool own = found.scale != nullptr && found.scale->op == OpCode::quant_scale &&
                   found.scale->operands[0] == found.amax->results[0];
  if (!own) return why = "its scale is not from its own amax alone", std::nullopt;
  return found;
}

// Whether some quantizer reads the value: otherwise the rule does not concern it.
bool concerns(const Matcher& m, ValueId y) {
  return m.reader(y, OpCode::quantize) != nullptr || m.reader(y, OpCode::quantize_both) != nullptr;
}

// The fused op gives codes, and with a scale of its own also the scale and the flag.
Match quantized_match(const TensorQuantizer& q, const Node& node) {
  Match match;
  match.tag = node.tag;
  if (q.amax == nullptr) {
    match.last = q.quantize;
    match.replaces = {q.quantize->results[0]};
    match.consumed = {&node};
  } else {
    match.last = &node;
    match.replaces = {q.quantize->results[0], q.scale->results[0], q.amax->results[1]};
    match.consumed = {q.quantize, q.scale, q.amax};
  }
  return match;
}

}  // namespace

std::span<const FuseRule> fuse_rules() {
  return kRules;
}

std::optional<Match> match_stored_operands(const Matcher& m, const Node& node,
                                           std::vector<std::string>&) {
  const StoredPlaces stored = stored_places(node.op);
  if (stored.places.empty()) return std::nullopt;
  std::vector<ValueId> operands = node.operands;
  int64_t group = 0;
  for (const auto& [i, scales] : stored.places) {
    const Node* dequantize = m.producer(node.operands[i]);
    if (dequantize == nullptr || dequantize->op != OpCode::dequantize) return std::nullopt;
    group = std::get<QuantizeAttrs>(dequantize->attrs).group;
    if (group == 0) return std::nullopt;
    operands.resize(std::max(operands.size(), scales + 1), kNoValue);
    operands[i] = dequantize->operands[0];
    operands[scales] = dequantize->operands[1];
  }
  return Match{.last = &node,
               .op = node.op,
               .attrs = with_group(node.attrs, group),
               .operands = operands,
               .replaces = node.results,
               .dtypes = result_dtypes(m, node),
               .tag = node.tag};
}

std::optional<Match> match_add_quantize(const Matcher& m, const Node& node,
                                        std::vector<std::string>& near_misses) {
  if (node.op != OpCode::add || m.reader(node.results[0], OpCode::quantize_groups) == nullptr)
    return std::nullopt;
  const Node* cast = m.reader(node.results[0], OpCode::cast);
  const Node* groups = m.reader(node.results[0], OpCode::quantize_groups);
  if (cast == nullptr || m.readers(node.results[0]).size() != 2 || m.handed_out(node.results[0])) {
    near_misses.push_back(fmt::format(
        "add_quantize: {}: the sum is not read by one cast and one quantize_groups alone",
        print(m.graph(), node)));
    return std::nullopt;
  }
  return Match{.last = cast,
               .op = OpCode::add_quantize,
               .attrs = groups->attrs,
               .operands = node.operands,
               .replaces = {cast->results[0], groups->results[0], groups->results[1]},
               .dtypes = {m.dtype(cast->results[0])},
               .tag = node.tag,
               .consumed = {&node, groups}};
}

std::optional<Match> match_norm_quantize(const Matcher& m, const Node& node,
                                         std::vector<std::string>& near_misses) {
  if ((node.op != OpCode::rms_norm && node.op != OpCode::layer_norm) ||
      !concerns(m, node.results[0]))
    return std::nullopt;
  std::string why = "layer_norm has no quantizing kernel";
  const auto q =
      node.op == OpCode::layer_norm ? std::nullopt : tensor_quantizer(m, node.results[0], why);
  if (!q) {
    near_misses.push_back(fmt::format("norm_quantize: {}: {}", print(m.graph(), node), why));
    return std::nullopt;
  }
  Match match = quantized_match(*q, node);
  match.op = OpCode::rms_norm_quantize;
  match.attrs = NormQuantizeAttrs{.norm = std::get<NormAttrs>(node.attrs),
                                  .q = std::get<QuantizeAttrs>(q->quantize->attrs)};
  match.operands = {node.operands[0], operand_or_none(node, 1), operand_or_none(node, 2),
                    q->amax == nullptr ? q->quantize->operands[1] : kNoValue};
  match.operands = trimmed(match.operands);
  if (q->amax != nullptr) {
    match.replaces.push_back(node.results[1]);
  } else if (!m.readers(node.results[1]).empty()) {
    near_misses.push_back(
        fmt::format("norm_quantize: {}: its statistics are read", print(m.graph(), node)));
    return std::nullopt;
  }
  match.dtypes = std::vector<Dtype>(4, Dtype::f32);
  return match;
}

std::optional<Match> match_gated_quantize(const Matcher& m, const Node& node,
                                          std::vector<std::string>& near_misses) {
  if ((node.op != OpCode::gated_act && node.op != OpCode::gelu) || !concerns(m, node.results[0]))
    return std::nullopt;
  std::string why = "gelu has no quantizing kernel";
  const auto q = node.op == OpCode::gelu ? std::nullopt : tensor_quantizer(m, node.results[0], why);
  if (!q) {
    near_misses.push_back(fmt::format("gated_quantize: {}: {}", print(m.graph(), node), why));
    return std::nullopt;
  }
  Match match = quantized_match(*q, node);
  match.op = OpCode::gated_act_quantize;
  match.attrs = GatedActQuantizeAttrs{.act = std::get<GatedActAttrs>(node.attrs),
                                      .q = std::get<QuantizeAttrs>(q->quantize->attrs)};
  match.operands =
      trimmed({node.operands[0], node.operands[1], operand_or_none(node, 2),
               operand_or_none(node, 3), q->amax == nullptr ? q->quantize->operands[1] : kNoValue});
  match.dtypes = std::vector<Dtype>(3, Dtype::f32);
  return match;
}

std::optional<Match> match_gemm_accumulate(const Matcher& m, const Node& node,
                                           std::vector<std::string>&) {
  if (node.op != OpCode::add) return std::nullopt;
  for (const size_t i : {1, 0}) {
    const Node* gemm = m.producer(node.operands[i]);
    const ValueId other = node.operands[1 - i];
    if (gemm == nullptr || gemm->op != OpCode::gemm ||
        (gemm->operands.size() > 2 && gemm->operands[2] != kNoValue))
      continue;
    if (m.readers(node.operands[i]).size() != 1 || m.handed_out(node.operands[i])) continue;
    if (m.dtype(other) != m.dtype(node.results[0]) ||
        m.dtype(gemm->results[0]) != m.dtype(node.results[0]))
      continue;
    // The forward residual stays apart, where it is repeated too: its sum is quantized from f32.
    if (gemm->tag.role == Role::forward ||
        std::get<GemmAttrs>(gemm->attrs).role == GemmRole::forward)
      continue;
    std::vector<ValueId> operands = gemm->operands;
    operands.resize(std::max<size_t>(operands.size(), 3), kNoValue);
    operands[2] = other;
    return Match{.last = &node,
                 .op = OpCode::gemm,
                 .attrs = gemm->attrs,
                 .operands = operands,
                 .replaces = node.results,
                 .dtypes = result_dtypes(m, node),
                 .tag = gemm->tag,
                 .consumed = {gemm}};
  }
  return std::nullopt;
}

}  // namespace octet
